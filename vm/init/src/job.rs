//! The job: everything the guest has to know, as one file in its initramfs.
//!
//! The kernel's command line is too short for a command, and could not carry every byte of one. A
//! field is `KEY=VALUE` ended by a NUL byte, which neither an argument nor a path can hold.

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// A directory of the host in the guest, over 9p.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// The 9p mount tag.
    pub tag: String,
    /// Its place in the guest.
    pub path: PathBuf,
    /// Whether the guest may write to it.
    pub writable: bool,
}

/// The crash kernel, and what runs in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dump {
    /// The kernel, by its path in the guest.
    pub kernel: PathBuf,
    /// The initramfs, by its path in the guest.
    pub initramfs: PathBuf,
    /// The crash kernel's command line.
    pub cmdline: String,
    /// The command that runs in the crash kernel before the dump is saved. Empty: none.
    pub argv: Vec<OsString>,
}

/// The guest's job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Job {
    /// The command and its arguments. Empty: a shell on the console.
    pub argv: Vec<OsString>,
    /// The command's whole environment.
    pub env: Vec<(OsString, OsString)>,
    /// Its working directory, or the root if the guest has no such directory.
    pub cwd: PathBuf,
    /// The host's directories beside its root.
    pub shares: Vec<Share>,
    /// If set, a panic saves a dump.
    pub dump: Option<Dump>,
    /// Printed on the console when a shell is about to start: only this run knows it.
    pub nonce: String,
}

/// An error in the encoding of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobError(String);

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bad job: {}", self.0)
    }
}

impl std::error::Error for JobError {}

impl Job {
    /// The job as bytes.
    ///
    /// # Errors
    /// A field holds a NUL byte.
    pub fn encode(&self) -> Result<Vec<u8>, JobError> {
        let mut out = Vec::new();
        let mut put = |key: &str, value: &[u8]| {
            if value.contains(&0) {
                return Err(JobError(format!("a NUL byte in {key}")));
            }
            out.extend_from_slice(key.as_bytes());
            out.push(b'=');
            out.extend_from_slice(value);
            out.push(0);
            Ok(())
        };
        for arg in &self.argv {
            put("arg", arg.as_bytes())?;
        }
        for (name, value) in &self.env {
            put("env", &[name.as_bytes(), b"=", value.as_bytes()].concat())?;
        }
        put("cwd", self.cwd.as_os_str().as_bytes())?;
        for share in &self.shares {
            let key = if share.writable {
                "share-rw"
            } else {
                "share-ro"
            };
            put(
                key,
                &[
                    share.tag.as_bytes(),
                    b"=",
                    share.path.as_os_str().as_bytes(),
                ]
                .concat(),
            )?;
        }
        if let Some(dump) = &self.dump {
            put("dump-kernel", dump.kernel.as_os_str().as_bytes())?;
            put("dump-initramfs", dump.initramfs.as_os_str().as_bytes())?;
            put("dump-cmdline", dump.cmdline.as_bytes())?;
            for arg in &dump.argv {
                put("dump-arg", arg.as_bytes())?;
            }
        }
        put("nonce", self.nonce.as_bytes())?;
        Ok(out)
    }

    /// Reads what [`Job::encode`] wrote.
    ///
    /// # Errors
    /// The bytes are not a whole job.
    pub fn decode(bytes: &[u8]) -> Result<Self, JobError> {
        let mut job = Self::default();
        let (mut kernel, mut initramfs, mut cmdline) = (None, None, None);
        let mut argv = Vec::new();
        let Some(fields) = bytes.strip_suffix(&[0]) else {
            return Err(JobError("it does not end with a NUL byte".into()));
        };
        for field in fields.split(|&b| b == 0) {
            let (key, value) = split(field)?;
            let os = || OsString::from_vec(value.to_vec());
            match key {
                b"arg" => job.argv.push(os()),
                b"env" => {
                    let (name, value) = split(value)?;
                    job.env.push((
                        OsString::from_vec(name.to_vec()),
                        OsString::from_vec(value.to_vec()),
                    ));
                }
                b"cwd" => job.cwd = os().into(),
                b"share-ro" | b"share-rw" => {
                    let (tag, path) = split(value)?;
                    job.shares.push(Share {
                        tag: text(tag)?,
                        path: OsString::from_vec(path.to_vec()).into(),
                        writable: key == b"share-rw",
                    });
                }
                b"dump-kernel" => kernel = Some(os().into()),
                b"dump-initramfs" => initramfs = Some(os().into()),
                b"dump-cmdline" => cmdline = Some(text(value)?),
                b"dump-arg" => argv.push(os()),
                b"nonce" => job.nonce = text(value)?,
                _ => {
                    return Err(JobError(format!(
                        "unknown field {}",
                        String::from_utf8_lossy(key)
                    )));
                }
            }
        }
        job.dump = match (kernel, initramfs, cmdline) {
            (None, None, None) if argv.is_empty() => None,
            (Some(kernel), Some(initramfs), Some(cmdline)) => Some(Dump {
                kernel,
                initramfs,
                cmdline,
                argv,
            }),
            _ => return Err(JobError("half a dump".into())),
        };
        Ok(job)
    }
}

fn split(field: &[u8]) -> Result<(&[u8], &[u8]), JobError> {
    let at = field
        .iter()
        .position(|&b| b == b'=')
        .ok_or_else(|| JobError(format!("no '=' in {}", String::from_utf8_lossy(field))))?;
    Ok((&field[..at], &field[at + 1..]))
}

fn text(bytes: &[u8]) -> Result<String, JobError> {
    String::from_utf8(bytes.to_vec()).map_err(|_| JobError("not UTF-8".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Job {
        Job {
            argv: vec![
                "sh".into(),
                "".into(),
                OsString::from_vec(b"a=b \xff\n".to_vec()),
            ],
            env: vec![("A".into(), "x=y".into()), ("B".into(), "".into())],
            cwd: "/a b/c".into(),
            shares: vec![
                Share {
                    tag: "out".into(),
                    path: "/out".into(),
                    writable: true,
                },
                Share {
                    tag: "repo".into(),
                    path: "/with =space".into(),
                    writable: false,
                },
            ],
            dump: Some(Dump {
                kernel: "/k".into(),
                initramfs: "/i".into(),
                cmdline: "a=b c".into(),
                argv: vec!["look".into(), "".into()],
            }),
            nonce: "n1".into(),
        }
    }

    #[test]
    fn a_job_comes_back_as_it_was() {
        let job = sample();
        assert_eq!(Job::decode(&job.encode().unwrap()), Ok(job));
    }

    #[test]
    fn a_damaged_job_is_refused() {
        let bytes = sample().encode().unwrap();
        assert!(Job::decode(&bytes[..bytes.len() - 1]).is_err());
        assert!(Job::decode(b"").is_err());
        assert!(Job::decode(b"nonsense=1\0").is_err());
        assert!(Job::decode(b"arg\0").is_err());
        assert!(Job::decode(b"dump-kernel=/k\0").is_err());
        assert!(Job::decode(b"dump-arg=a\0").is_err());
    }

    #[test]
    fn a_nul_byte_is_refused() {
        let job = Job {
            argv: vec![OsString::from_vec(b"a\0b".to_vec())],
            ..Job::default()
        };
        assert!(job.encode().is_err());
    }
}
