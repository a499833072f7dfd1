//! A client of QEMU's debugger stub: the part of the remote serial protocol that breakpoints and
//! single steps need.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

/// How long a guest may run to a breakpoint.
const LIMIT: Duration = Duration::from_secs(300);
/// The byte that stops a running guest.
const INTERRUPT: u8 = 3;

/// Registers of the stopped processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registers {
    /// The first argument, at the first instruction of a function.
    pub rdi: u64,
    /// The stack pointer.
    pub rsp: u64,
    /// The next instruction.
    pub rip: u64,
    /// The flags.
    pub eflags: u32,
}

/// A guest under the debugger. It runs only when a command says so.
#[derive(Debug)]
pub struct Debugger {
    stream: BufReader<UnixStream>,
    /// The processor that stopped.
    thread: String,
}

impl Debugger {
    /// Connects to a stub that got no command yet. The guest is stopped.
    pub(crate) fn new(stream: UnixStream) -> Result<Self> {
        stream.set_read_timeout(Some(LIMIT))?;
        let mut debugger = Self {
            stream: BufReader::new(stream),
            thread: "1".into(),
        };
        // The guest may already run. Then the interrupt causes an additional stop packet.
        debugger.write(&[INTERRUPT])?;
        debugger.send("qC")?;
        while !debugger.receive()?.starts_with("QC") {}
        Ok(debugger)
    }

    /// Lets the guest run.
    ///
    /// # Errors
    /// When QEMU is gone.
    pub fn start(&mut self) -> Result<()> {
        self.send("vCont;c")
    }

    /// Stops a guest that runs.
    ///
    /// # Errors
    /// When it does not stop, or is gone.
    pub fn interrupt(&mut self) -> Result<()> {
        self.write(&[INTERRUPT])?;
        self.wait()
    }

    /// Lets the guest run until it comes to a breakpoint.
    ///
    /// # Errors
    /// When it does not within some minutes, or is gone.
    pub fn run(&mut self) -> Result<()> {
        self.start()?;
        self.wait()
    }

    /// Lets the guest run, and ends the connection.
    ///
    /// # Errors
    /// When QEMU is gone.
    pub fn detach(mut self) -> Result<()> {
        self.tell("D").map(drop)
    }

    /// Steps the stopped processor by one instruction, without interrupts. The others stay stopped.
    ///
    /// # Errors
    /// When QEMU is gone.
    pub fn step(&mut self) -> Result<()> {
        self.send(&format!("vCont;s:{}", self.thread))?;
        self.wait()
    }

    /// Sets or removes a breakpoint before the instruction at an address.
    ///
    /// # Errors
    /// When QEMU cannot, or is gone.
    pub fn set_breakpoint(&mut self, address: u64, is_set: bool) -> Result<()> {
        let set = if is_set { 'Z' } else { 'z' };
        // A hardware breakpoint does not change the guest's memory.
        let said = self.tell(&format!("{set}1,{address:x},1"))?;
        ensure!(said == "OK", "a breakpoint at {address:#x}: {said:?}");
        Ok(())
    }

    /// The registers of the stopped processor.
    ///
    /// # Errors
    /// When QEMU is gone.
    pub fn registers(&mut self) -> Result<Registers> {
        let said = self.tell("g")?;
        // The order of gdb's target description: rax, rbx, rcx, rdx, rsi, rdi, rbp, rsp, r8 to r15,
        // rip, eflags.
        let register = |n: usize| {
            let digits = said.get(n * 16..(n + 1) * 16);
            word(digits.with_context(|| format!("registers: {said:?}"))?)
        };
        // Of 32 bits, with segments after it.
        let eflags = register(17)? as u32;
        Ok(Registers {
            rdi: register(5)?,
            rsp: register(7)?,
            rip: register(16)?,
            eflags,
        })
    }

    /// Sets the flags of the stopped processor.
    ///
    /// # Errors
    /// When QEMU cannot, or is gone.
    pub fn set_eflags(&mut self, eflags: u32) -> Result<()> {
        // Writes all registers: some versions of QEMU write a single one only after a request for
        // the target description.
        let mut registers = self.tell("g")?;
        let place = 17 * 16..17 * 16 + 8;
        ensure!(
            registers.is_char_boundary(place.end),
            "registers: {registers:?}"
        );
        registers.replace_range(place, &format!("{:08x}", eflags.swap_bytes()));
        let said = self.tell(&format!("G{registers}"))?;
        ensure!(said == "OK", "flags {eflags:#x}: {said:?}");
        Ok(())
    }

    /// The word at a mapped address.
    ///
    /// # Errors
    /// When it is not, or QEMU is gone.
    pub fn read(&mut self, address: u64) -> Result<u64> {
        let said = self.tell(&format!("m{address:x},8"))?;
        word(&said).with_context(|| format!("what is at {address:#x}"))
    }

    /// Waits until the guest has stopped.
    fn wait(&mut self) -> Result<()> {
        let said = self.receive().context("the guest does not stop")?;
        let thread = said.split_once("thread:").map(|(_, rest)| rest);
        let Some(thread) = thread.filter(|_| said.starts_with('T')) else {
            bail!("the guest did not stop: {said:?}");
        };
        self.thread = thread.trim_end_matches(';').to_owned();
        Ok(())
    }

    fn tell(&mut self, command: &str) -> Result<String> {
        self.send(command)?;
        self.receive().with_context(|| format!("{command:?}"))
    }

    fn send(&mut self, command: &str) -> Result<()> {
        let sum = sum(command.as_bytes());
        self.write(format!("${command}#{sum:02x}").as_bytes())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let mut stream = self.stream.get_ref();
        stream
            .write_all(bytes)
            .context("QEMU's debugger stub is gone")
    }

    /// The next packet. It is not acknowledged: the next command suffices, and an acknowledgement
    /// would stop a running guest.
    fn receive(&mut self) -> Result<String> {
        let mut before = Vec::new();
        self.stream.read_until(b'$', &mut before)?;
        ensure!(before.ends_with(b"$"), "QEMU's debugger stub is gone");
        let mut packet = Vec::new();
        self.stream.read_until(b'#', &mut packet)?;
        packet.pop();
        let mut digits = [0; 2];
        self.stream.read_exact(&mut digits)?;
        let said = std::str::from_utf8(&digits)?;
        ensure!(
            u8::from_str_radix(said, 16) == Ok(sum(&packet)),
            "a packet with a wrong sum: {:?}",
            String::from_utf8_lossy(&packet)
        );
        Ok(String::from_utf8(packet)?)
    }
}

fn sum(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |sum, byte| sum.wrapping_add(*byte))
}

/// Parses a word from its bytes in memory order.
fn word(digits: &str) -> Result<u64> {
    let word = u64::from_str_radix(digits, 16).with_context(|| format!("no word: {digits:?}"))?;
    ensure!(digits.len() == 16, "no word: {digits:?}");
    Ok(word.swap_bytes())
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// Plays a stub: sends each packet after it has received the command before it.
    fn stub(mut stream: UnixStream, talk: &'static [(&str, &[u8])]) -> thread::JoinHandle<()> {
        thread::spawn(move || {
            for (expected, answer) in talk {
                let mut said = vec![0; expected.len()];
                stream.read_exact(&mut said).unwrap();
                assert_eq!(String::from_utf8_lossy(&said), *expected);
                stream.write_all(answer).unwrap();
            }
        })
    }

    fn talk(talk: &'static [(&str, &[u8])], with: impl FnOnce(Result<Debugger>)) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let stub = stub(theirs, talk);
        with(Debugger::new(ours));
        stub.join().unwrap();
    }

    #[test]
    fn it_steps_the_processor_that_stopped() {
        talk(
            &[
                // It ran, and stopped.
                ("\x03$qC#b4", b"$T02thread:01;#04+$QC01#f5"),
                ("$Z1,ffffffff81000000,1#cd", b"+$OK#9a"),
                ("$vCont;c#a8", b"+$T05thread:02;#08"),
                ("$vCont;s:02#54", b"+$T05thread:02;#08"),
                ("$m10,8#32", b"+$efcdab8967452301#62"),
            ],
            |debugger| {
                let mut debugger = debugger.unwrap();
                debugger
                    .set_breakpoint(0xffff_ffff_8100_0000, true)
                    .unwrap();
                debugger.run().unwrap();
                debugger.step().unwrap();
                assert_eq!(debugger.read(0x10).unwrap(), 0x0123_4567_89ab_cdef);
            },
        );
    }

    #[test]
    fn errors_are_reported() {
        talk(
            &[
                ("\x03$qC#b4", b"$QC01#f5"),
                ("$m10,8#32", b"+$E14#aa"),
                ("$z1,10,1#95", b"+$E22#a9"),
                ("$vCont;c#a8", b"+$W00#b7"),
            ],
            |debugger| {
                let mut debugger = debugger.unwrap();
                assert!(debugger.read(0x10).is_err());
                assert!(debugger.set_breakpoint(0x10, false).is_err());
                assert!(debugger.run().is_err());
                // And now it is gone.
                assert!(debugger.step().is_err());
            },
        );
        talk(&[("\x03$qC#b4", b"$QC01#f6")], |debugger| {
            let said = debugger.unwrap_err().to_string();
            assert!(said.contains("wrong sum"), "{said}");
        });
    }
}
