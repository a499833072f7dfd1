//! `redis-server`, as a program of others under load.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::proc_snapshot::ProcSnapshot;
use crate::running::Running;
use usertrace_testing::wait;

/// Whether the server of this socket has open connections. They have the name of the listening
/// socket.
fn has_clients(socket: &Path) -> bool {
    let table = fs::read_to_string("/proc/net/unix").expect("/proc/net/unix");
    let socket = socket.to_str().expect("UTF-8");
    table.lines().filter(|line| line.ends_with(socket)).count() > 1
}

/// The result of a load.
#[derive(Debug, PartialEq, Eq)]
pub struct Served {
    /// The server's answers about its contents at the end.
    pub answers: String,
    /// Snapshots of the server before and after the load.
    pub snapshots: [ProcSnapshot; 2],
}

/// Runs `redis-server` under a load of so many requests of each kind. `prepare` changes its
/// command.
///
/// # Panics
/// If anything fails, or hangs.
#[must_use]
pub fn serve(requests: u64, prepare: impl FnOnce(&mut Command)) -> Served {
    let directory = tempfile::tempdir_in("/tmp").expect("a directory");
    let socket = directory.path().join("socket");
    // The same executable under another name: the package of `redis-server` starts a system
    // service.
    let mut command = Command::new("redis-check-rdb");
    command
        .arg0("redis-server")
        .args(["--port", "0", "--save", "", "--enable-debug-command", "yes"])
        .args(["--io-threads", "3", "--io-threads-do-reads", "yes", "--dir"])
        .args([directory.path(), Path::new("--unixsocket"), &socket])
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    prepare(&mut command);
    // Of the package redis-tools.
    let mut server = Running::start(&mut command);
    let ask = |arguments: &[&str]| {
        let command = ["redis-cli", "-s", socket.to_str().expect("UTF-8")];
        let output = Command::new("timeout")
            .arg("600")
            .args(command)
            .args(arguments)
            .output();
        let output = output.expect("redis-cli");
        let answer = || String::from_utf8_lossy(&output.stdout).into_owned();
        output.status.success().then(answer)
    };
    wait::until_some("the server answers", || {
        ask(&["ping"]).filter(|answer| answer == "PONG\n")
    });
    let pid = server.0.id();
    let snapshot = || {
        wait::until_some("the server has no clients", || {
            (!has_clients(&socket)).then(|| ProcSnapshot::of(pid))
        })
    };
    let before = snapshot();
    let load = Command::new("timeout")
        .args(["600", "redis-benchmark", "-q", "-n"])
        .arg(requests.to_string())
        .args(["-c", "30", "-P", "4", "-s"])
        .arg(&socket)
        .args(["-t", "set,get,incr,lpush,rpop,sadd,hset,zadd,mset"])
        .output()
        .expect("redis-benchmark");
    assert!(load.status.success(), "{load:?}");
    let questions: [&[&str]; 4] = [
        &["dbsize"],
        &["debug", "digest"],
        &["get", "counter:__rand_int__"],
        &["llen", "mylist"],
    ];
    let answers = questions
        .map(|question| ask(question).expect("an answer"))
        .concat();
    let after = snapshot();
    let _ = ask(&["shutdown", "nosave"]);
    let status = server.wait();
    assert!(status.success(), "{status}");
    Served {
        answers,
        snapshots: [before, after],
    }
}
