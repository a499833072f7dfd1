//! Saves the dead kernel's memory, in the crash kernel.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, Result, bail};
use usertrace_init::{CRASH_LOG_NAME, DUMP_BLOCK, DUMP_NAME, Job, OUT_PATH};

use crate::command::prepare;
use crate::mounts;

/// Runs the job's first command, and copies `/proc/vmcore`, with holes for blocks of zeros. Returns
/// its size.
pub(crate) fn save(job: &Job) -> Result<u64> {
    let argv = job.dump.as_ref().map_or(&[][..], |dump| &dump.argv);
    if let Some((program, args)) = argv.split_first() {
        mounts::enter_root(job)?;
        let status = run_to_its_end(job, program, args)?;
        if !status.success() {
            bail!("{} in the crash kernel: {status}", program.display());
        }
    } else {
        mounts::mount_share(Path::new("/"), &mounts::out_share())?;
    }
    let from = File::open("/proc/vmcore").context("opening /proc/vmcore")?;
    // An incomplete dump has another name.
    let (path, part) = (
        Path::new(OUT_PATH).join(DUMP_NAME),
        Path::new(OUT_PATH).join(".vmcore.part"),
    );
    let to = File::create(&part).with_context(|| format!("making {}", part.display()))?;
    let bytes = copy_sparse(from, &to)?;
    to.set_len(bytes).context("setting the dump's length")?;
    to.sync_all().context("syncing the dump")?;
    std::fs::rename(&part, &path).context("naming the dump")?;
    Ok(bytes)
}

fn run_to_its_end(job: &Job, program: &OsStr, args: &[OsString]) -> Result<ExitStatus> {
    let path = Path::new(OUT_PATH).join(CRASH_LOG_NAME);
    let log = File::create(&path).with_context(|| format!("making {}", path.display()))?;
    let mut command = Command::new(program);
    command
        .args(args)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log);
    prepare(&mut command, job);
    let status = command.status();
    status.with_context(|| format!("running {}", program.display()))
}

fn copy_sparse(mut from: impl Read, mut to: impl Write + Seek) -> Result<u64> {
    let mut buf = vec![0; 256 * DUMP_BLOCK];
    let mut at = 0;
    loop {
        let n = fill(&mut from, &mut buf).context("reading the dump")?;
        let mut start = 0;
        // One write for each run of blocks that are not zero.
        while start < n {
            let zeros = run(&buf[start..n], true);
            start += zeros;
            let data = run(&buf[start..n], false);
            if data > 0 {
                to.seek(SeekFrom::Start(at + start as u64))?;
                to.write_all(&buf[start..start + data])
                    .context("writing the dump")?;
            }
            start += data;
        }
        at += n as u64;
        if n < buf.len() {
            return Ok(at);
        }
    }
}

/// The length of the blocks at the beginning of `bytes` that are all zero, or are not.
fn run(bytes: &[u8], zero: bool) -> usize {
    bytes
        .chunks(DUMP_BLOCK)
        .take_while(|block| is_zero(block) == zero)
        .map(<[u8]>::len)
        .sum()
}

fn is_zero(block: &[u8]) -> bool {
    block.first() == Some(&0) && block[1..] == block[..block.len() - 1]
}

/// Reads until the buffer is full or the input ends.
fn fill(from: &mut impl Read, buf: &mut [u8]) -> std::io::Result<usize> {
    let mut n = 0;
    while n < buf.len() {
        match from.read(&mut buf[n..]) {
            Ok(0) => break,
            Ok(got) => n += got,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(n)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    #[test]
    fn copy_equals_the_source() {
        for len in [
            0,
            1,
            DUMP_BLOCK - 1,
            DUMP_BLOCK,
            5 * DUMP_BLOCK + 7,
            600 * DUMP_BLOCK + 1,
        ] {
            let mut data = vec![0; len];
            for (i, block) in data.chunks_mut(DUMP_BLOCK).enumerate() {
                if i % 3 == 1 || i % 7 == 0 {
                    let last = block.len() - 1;
                    block[last] = 1;
                }
            }
            let mut to = Cursor::new(Vec::new());
            assert_eq!(copy_sparse(&data[..], &mut to).unwrap(), len as u64);
            let mut got = to.into_inner();
            got.resize(len, 0);
            assert!(got == data, "length {len}");
        }
    }

    #[test]
    fn blocks_of_zeros_are_not_written() {
        let mut to = Cursor::new(Vec::new());
        assert_eq!(
            copy_sparse(&[0; 10 * DUMP_BLOCK][..], &mut to).unwrap(),
            10 * DUMP_BLOCK as u64
        );
        assert!(to.into_inner().is_empty());
    }
}
