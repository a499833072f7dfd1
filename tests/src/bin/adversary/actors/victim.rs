//! An untraced program that fills memory with secret words, and checks that they do not change. A
//! page that is freed while an attacker can still reach it soon becomes one of these.

use syscalls::Sysno;
use usertrace_tests::random::Random;

use crate::actor::{Actor, call, exit, nap};
use crate::kinds::Kind;
use crate::pattern;
use crate::plan::one_in;
use crate::scene::PAGE;

/// The memory that it holds: so many pieces of so many pages.
const PIECES: usize = 16;
const PAGES: u64 = 64;

struct SecretMemory {
    at: usize,
    len: usize,
    number: u64,
}

impl SecretMemory {
    fn new(actor: &Actor, random: &mut Random) -> Option<Self> {
        let len = PAGE * (1 + random.below(PAGES) as usize);
        let number = random.word() & 0xffff_ffff_ffff;
        let rights = (libc::PROT_READ | libc::PROT_WRITE) as usize;
        // Pages of files in memory, too.
        let kind = if one_in(random, 3) {
            libc::MAP_SHARED
        } else {
            libc::MAP_PRIVATE
        };
        let flags = (kind | libc::MAP_ANONYMOUS) as usize;
        let at = actor
            .around(Kind::VictimFill, || {
                let at = call(Sysno::mmap, [0, len, rights, flags, usize::MAX, 0])?;
                for word in 0..len / 8 {
                    // SAFETY: In the mapping, which no Rust object lies in.
                    unsafe {
                        ((at + 8 * word) as *mut u64).write_volatile(pattern::secret(number))
                    };
                }
                Ok(at)
            })
            .ok()?;
        Some(Self { at, len, number })
    }

    fn check(&self, actor: &Actor) {
        let _ = actor.around(Kind::VictimCheck, || {
            for word in 0..self.len / 8 {
                // SAFETY: In the mapping.
                let found = unsafe { ((self.at + 8 * word) as *const u64).read_volatile() };
                if found != pattern::secret(self.number) {
                    actor.find(&format!(
                        "memory of a program that is not traced has changed: {:#x} has {found:#018x} in place of {:#018x}",
                        self.at + 8 * word,
                        pattern::secret(self.number),
                    ));
                    return Err(libc::EFAULT);
                }
            }
            Ok(0)
        });
    }
}

/// Runs the victim until its end.
pub(crate) fn run(actor: &Actor) {
    let mut pieces: Vec<SecretMemory> = Vec::new();
    for step in 0..400 {
        if !actor.begin_step() {
            break;
        }
        let mut random = actor.stream(step);
        if pieces.len() < PIECES {
            pieces.extend(SecretMemory::new(actor, &mut random));
        }
        let at = random.below(pieces.len().max(1) as u64) as usize;
        let ends = random.below(3) == 0;
        if let Some(piece) = pieces.get(at) {
            piece.check(actor);
            if ends {
                let _ = call(Sysno::munmap, [piece.at, piece.len]);
                pieces.swap_remove(at);
            }
        }
        actor.end_step(step, 0);
        nap(1);
    }
    let _ = actor.wait_for_turn();
    for piece in &pieces {
        piece.check(actor);
    }
    exit(0);
}
