//! Tracing does not change the environment that a program sees (F2, D5).

use std::fs;
use std::io::Write;

use super::run::Run;

/// No child, signal, descriptor, thread or output: everything that a program can ask for is as
/// without tracing.
pub(crate) fn tracing_changes_nothing_that_a_program_sees() {
    let run = Run::new();
    let with = run.output("surroundings", &[]);
    let mut command = run.command("surroundings", &[]);
    let without = command.env("USERTRACE_BACKEND", "off").output().unwrap();
    assert_eq!(
        String::from_utf8_lossy(&with.stdout),
        String::from_utf8_lossy(&without.stdout)
    );
    assert!(with.stdout.len() > 1000);
    assert!(with.stderr.is_empty() && without.stderr.is_empty());
    assert_eq!(with.status, without.status);
    run.wait();
}

/// The daemons share nothing visible with the program: session, terminal, files, directory, name.
///
/// Requirements: D5
pub(crate) fn daemons_share_nothing_visible_with_the_program() {
    let run = Run::new();
    let mut child = run.start("steps", &[]);
    let mut line = String::new();
    let mut output = std::io::BufReader::new(child.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut output, &mut line).unwrap();
    for pid in line.split_whitespace() {
        let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap();
        assert_eq!(read("comm"), "usertrace-fast\n");
        let stat = read("stat");
        let (_, rest) = stat.rsplit_once(')').unwrap();
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let [group, session, terminal] = [2, 3, 4].map(|n| fields[n].parse::<i32>().unwrap());
        // SAFETY: neither call takes pointers.
        let own = unsafe { (libc::getpgrp(), libc::getsid(0)) };
        assert!(
            group != own.0 && session != own.1 && terminal == 0,
            "{stat}"
        );
        assert_eq!(
            fs::read_link(format!("/proc/{pid}/cwd")).unwrap(),
            std::path::Path::new("/")
        );
        for entry in fs::read_dir(format!("/proc/{pid}/fd")).unwrap() {
            let target = fs::read_link(entry.unwrap().path()).unwrap();
            let target = target.to_str().unwrap();
            let known = ["/dev/null", "anon_inode:[eventfd]", "anon_inode:[pidfd]"];
            let known = known.contains(&target)
                || target.starts_with("pidfd:")
                || target.starts_with("/proc/")
                || target.starts_with(run.path().to_str().unwrap());
            assert!(known, "{target}");
        }
        // The command line, which `ps` shows and `pkill -f` matches, is not the program's.
        assert_eq!(read("cmdline").trim_end_matches('\0'), "usertrace-fast");
    }
    child.stdin.take().unwrap().write_all(b"q").unwrap();
    assert!(child.wait().unwrap().success());
    run.wait();
}
