//! A leak that a dump shows, on a machine without the program.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;
use usertrace_testing::compiled::{Compiled, compile};
use usertrace_tests::program;

use crate::guest::{Crash, Crashed};

/// It leaks thrice in `lose`, says so, and waits.
const SHOP: &str = r#"
#include <stdlib.h>
#include <unistd.h>
void *volatile block;
__attribute__((noinline, noclone)) void lose(void)
{
	block = malloc(1000);
	__asm__ volatile(".globl here\nhere:\n\tnop");
}
int main(void)
{
	for (volatile int n = 0; n < 3; n++)
		lose();
	free(malloc(5000));
	if (write(1, "x", 1) == 1)
		pause();
	return 1;
}
"#;

/// The first line of `usertrace leaks`, up to the path of the source.
const CULPRIT: &str = "3000 bytes in 3 blocks: lose (";

/// The leaking program, without its debug information, where guests find it.
pub(crate) struct Leaking {
    directory: TempDir,
    program: Compiled,
    debug: PathBuf,
}

impl Leaking {
    pub(crate) fn new() -> Self {
        let numbered = program::path("numbered");
        let beside = numbered.parent().expect("a directory");
        let directory = tempfile::tempdir_in(beside).expect("a directory");
        let program = compile(directory.path(), SHOP, &["-fno-omit-frame-pointer"]);
        let debug = program.split();
        Self {
            directory,
            program,
            debug,
        }
    }

    /// Runs it in the guest, up to its last allocation, with its events in a trace `leak`.
    pub(crate) fn in_guest(&self, crash: Crash) -> Crash {
        let library = program::path("libusertrace_malloc.so");
        crash
            .before("mkdir $ltt/leak; cd $ltt/leak")
            .before("echo 'libc:*' > filter; echo 'vtid callstack:8' > main/contexts")
            .before("echo 1 > start")
            .before(&format!(
                // The library's path may have a space, at which the dynamic linker splits.
                "ln -s '{}' /tmp/malloc.so; LD_PRELOAD=/tmp/malloc.so '{}' > /tmp/said &",
                library.display(),
                self.program.path.display()
            ))
            .before("while ! [ -s /tmp/said ]; do sleep 0.1; done")
    }

    /// `usertrace leaks` names the function, the file and the line out of the dump, though the
    /// program is no longer there. Files of another build are not used, and a message says so.
    pub(crate) fn check_is_found(self, crashed: &Crashed) {
        let traces = crashed.extract("for-leaks").join("leak");
        std::fs::remove_file(&self.program.path).expect("the program");
        let symbols = self.directory.path().join("symbols");
        let place = symbols.join(self.program.debug_path());
        std::fs::create_dir_all(place.parent().expect("a directory")).expect("directories");
        std::fs::rename(&self.debug, &place).expect("the debug file");
        let output = leaks(&traces, &symbols);
        let source = self.directory.path().join("shop.c");
        let expected = format!("{CULPRIT}{}:7), shop (", source.display());
        assert!(first_line(&output).starts_with(&expected), "{output:?}");
        // The whole stack is there, and nothing else is so large.
        let stdout = String::from_utf8_lossy(&output.stdout);
        let caller = format!("main ({}:13)", source.display());
        assert!(stdout.contains(&caller), "{stdout}");
        let id = self.program.build_id.clone().expect("a build ID");
        let other = compile(
            self.directory.path(),
            SHOP,
            &["-fno-omit-frame-pointer", "-O1"],
        );
        let other_id = other.build_id.clone().expect("a build ID");
        assert_ne!(id, other_id);
        // Of another build is what has the name of the build ID, and what is at the program's path.
        let debug = other.split();
        std::fs::rename(&debug, &place).expect("the debug file");
        for is_there in [true, false] {
            if !is_there {
                std::fs::remove_file(&other.path).expect("the program");
            }
            let output = leaks(&traces, &symbols);
            let unknown = "3000 bytes in 3 blocks: shop+0x";
            assert!(first_line(&output).starts_with(unknown), "{output:?}");
            let stderr = String::from_utf8_lossy(&output.stderr);
            let says = |text: &str| assert!(stderr.contains(text), "{stderr}");
            says("is not what was traced: it has build ID");
            for id in [&id, &other_id] {
                says(id);
            }
        }
    }
}

fn leaks(traces: &Path, symbols: &Path) -> Output {
    let mut command = Command::new(program::path("usertrace"));
    command
        .args(["leaks", "--debug-dir"])
        .args([symbols, traces]);
    command
        .env_remove("DEBUGINFOD_URLS")
        .env("DEBUGINFOD_CACHE_PATH", "/nonexistent");
    command.output().expect("usertrace")
}

fn first_line(output: &Output) -> String {
    let stdout = String::from_utf8_lossy(&output.stdout);
    stdout.lines().next().unwrap_or_default().to_owned()
}
