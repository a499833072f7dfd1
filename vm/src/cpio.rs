//! The "newc" archive that the kernel unpacks as its initramfs
//! (Documentation/driver-api/early-userspace).

/// An archive in the making.
#[derive(Debug, Default)]
pub(crate) struct Archive {
    bytes: Vec<u8>,
    inode: u32,
}

const S_IFDIR: u32 = 0o040_000;
const S_IFREG: u32 = 0o100_000;
const S_IFCHR: u32 = 0o020_000;

impl Archive {
    /// Adds a directory.
    pub(crate) fn directory(&mut self, name: &str) {
        self.entry(name, S_IFDIR | 0o755, (0, 0), &[]);
    }

    /// Adds a file.
    pub(crate) fn file(&mut self, name: &str, mode: u32, data: &[u8]) {
        self.entry(name, S_IFREG | mode, (0, 0), data);
    }

    /// Adds a character device.
    pub(crate) fn device(&mut self, name: &str, major: u32, minor: u32) {
        self.entry(name, S_IFCHR | 0o600, (major, minor), &[]);
    }

    /// Ends the archive.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, (0, 0), &[]);
        self.bytes
    }

    fn entry(&mut self, name: &str, mode: u32, device: (u32, u32), data: &[u8]) {
        self.inode += 1;
        let fields = [
            self.inode,
            mode,
            0, // uid
            0, // gid
            1, // links
            0, // time: the same input makes the same archive
            data.len() as u32,
            0, // the device that holds it
            0,
            device.0,
            device.1,
            name.len() as u32 + 1,
            0, // checksum: none in this format
        ];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes
                .extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(data);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::process::{Command, Stdio};

    #[test]
    fn cpio_itself_reads_the_archive() {
        let mut archive = Archive::default();
        archive.directory("dev");
        archive.device("dev/console", 5, 1);
        archive.file("init", 0o755, b"abc");
        let mut cpio = Command::new("cpio")
            .args(["-tv", "--quiet", "--numeric-uid-gid"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        cpio.stdin
            .take()
            .unwrap()
            .write_all(&archive.finish())
            .unwrap();
        let out = cpio.wait_with_output().unwrap();
        assert!(out.status.success());
        let text = String::from_utf8(out.stdout).unwrap();
        let mut lines = text.lines();
        assert!(lines.next().unwrap().starts_with("drwxr-xr-x"));
        let console = lines.next().unwrap();
        assert!(
            console.starts_with("crw-------") && console.contains("5,   1"),
            "{console}"
        );
        let init = lines.next().unwrap();
        assert!(
            init.starts_with("-rwxr-xr-x") && init.ends_with(" init") && init.contains(" 3 "),
            "{init}"
        );
        assert_eq!(lines.next(), None);
    }
}
