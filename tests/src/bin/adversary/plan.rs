//! The options of a run, and the stream of random numbers of each step.

use std::hash::{BuildHasher, Hasher, RandomState};

use usertrace_tests::random::Random;

/// The options of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// The seed of all random numbers.
    pub(crate) seed: u64,
    /// How long the run lasts.
    pub(crate) seconds: u64,
    /// The limit of steps of all actors together. 0: no limit.
    pub(crate) calls: u64,
    /// One actor of one thread at a time, in an order that follows from the seed.
    pub(crate) turns: bool,
    /// Whether CPUs are taken offline and online.
    pub(crate) hotplug: bool,
}

/// The thread that makes a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ThreadId {
    /// The actor, of which there is one process at a time.
    pub(crate) actor: usize,
    /// The process of the actor, counted from 0.
    pub(crate) round: u64,
    /// The thread of that process.
    pub(crate) thread: usize,
}

/// A random seed.
pub(crate) fn any_seed() -> u64 {
    // Short enough to be typed.
    RandomState::new().build_hasher().finish() & 0xffff_ffff
}

/// Mixes the bits (splitmix64).
fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

impl Plan {
    /// The random numbers of one step. Each step has its own stream, because how many numbers a
    /// step takes can depend on what the kernel returns.
    pub(crate) fn stream(&self, who: ThreadId, step: u64) -> Random {
        let words = [who.actor as u64, who.round, who.thread as u64, step];
        Random::with(
            words
                .iter()
                .fold(mix(self.seed), |seed, word| mix(seed ^ word)),
        )
    }

    /// The command line that repeats the run.
    pub(crate) fn again(&self) -> String {
        let mut text = format!("adversary --seed {} --seconds {}", self.seed, self.seconds);
        if self.calls != 0 {
            text += &format!(" --calls {}", self.calls);
        }
        if self.turns {
            text += " --turns";
        }
        if !self.hotplug {
            text += " --no-hotplug";
        }
        text
    }
}

/// One of the elements, chosen at random.
pub(crate) fn pick<T: Copy>(random: &mut Random, all: &[T]) -> T {
    all[random.below(all.len() as u64) as usize]
}

/// True once in so many times.
pub(crate) fn one_in(random: &mut Random, count: u64) -> bool {
    random.below(count) == 0
}
