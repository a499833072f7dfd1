//! Three hosts with a relay between them, whose network fails: network namespaces with a bridge.
//! Needs root; only the full tier runs it.

use std::io::Write as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::relay::{assert_exact, counts};
use super::run::{Run, VARIABLE, assert_success};
use super::trace;
use usertrace_testing::relayd::Relayd;
use usertrace_testing::wait::until;

/// The relay's address.
const RELAY: &str = "10.77.0.1";
const HOSTS: usize = 3;
/// How long the link of one host is down.
const CUT: Duration = Duration::from_secs(20);

/// Runs `ip` or `tc`.
fn run(words: &[&str]) {
    let output = Command::new(words[0]).args(&words[1..]).output().unwrap();
    assert!(output.status.success(), "{words:?}: {output:?}");
}

/// Namespaces, which go with this.
struct Network {
    names: Vec<String>,
}

impl Network {
    /// A namespace with a bridge, and one for each host, linked to it.
    fn new() -> Self {
        let id = std::process::id();
        let names = (0..=HOSTS).map(|n| format!("usertrace-{id}-{n}"));
        let network = Self {
            names: names.collect(),
        };
        for name in &network.names {
            run(&["ip", "netns", "add", name]);
            run(&["ip", "-n", name, "link", "set", "lo", "up"]);
        }
        let relay = &network.names[0];
        run(&["ip", "-n", relay, "link", "add", "br0", "type", "bridge"]);
        run(&[
            "ip",
            "-n",
            relay,
            "addr",
            "add",
            "10.77.0.1/24",
            "dev",
            "br0",
        ]);
        run(&["ip", "-n", relay, "link", "set", "br0", "up"]);
        for (n, host) in network.names.iter().enumerate().skip(1) {
            let (port, address) = (format!("port{n}"), format!("10.77.0.{}/24", n + 1));
            run(&[
                "ip", "-n", relay, "link", "add", &port, "type", "veth", "peer", "name", "eth0",
                "netns", host,
            ]);
            run(&[
                "ip", "-n", relay, "link", "set", &port, "master", "br0", "up",
            ]);
            run(&["ip", "-n", host, "addr", "add", &address, "dev", "eth0"]);
            run(&["ip", "-n", host, "link", "set", "eth0", "up"]);
        }
        network
    }

    /// Cuts the link of a host, or restores it.
    fn set_link(&self, host: usize, state: &str) {
        let port = format!("port{host}");
        run(&["ip", "-n", &self.names[0], "link", "set", &port, state]);
    }

    /// Makes the link of a host slow.
    fn slow_down(&self, host: usize) {
        let host = &self.names[host];
        run(&[
            "ip", "netns", "exec", host, "tc", "qdisc", "add", "dev", "eth0", "root", "tbf",
            "rate", "2mbit", "burst", "32k", "latency", "400ms",
        ]);
    }

    /// `usertrace record --relay` of a program on a host.
    fn record(&self, host: usize, name: &str, of: &Run) -> Child {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.names[host]]);
        command.args(["unshare", "--uts", "sh", "-c", "hostname $0; exec \"$@\""]);
        command.arg(format!("host{host}"));
        command.arg(env!("CARGO_BIN_EXE_usertrace"));
        command.args(["record", "--trace", name, "-o"]);
        command.arg(of.path().join("spool"));
        command.args(["--relay", &format!("tcp://{RELAY}")]);
        command.args(["--subbuf-size", "64k", "--relay-spool", "4M"]);
        command.args(["--relay-wait", "10min", "--"]);
        command.arg(std::env::current_exe().unwrap());
        command.env(VARIABLE, "slow_steps");
        let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        pipes.stderr(Stdio::piped()).spawn().unwrap()
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for name in &self.names {
            // There is nobody to report a failure to.
            let _ = Command::new("ip").args(["netns", "del", name]).output();
        }
    }
}

pub(crate) fn three_hosts_have_each_event_once_whatever_breaks() {
    let network = Network::new();
    let mut relay = Relayd::start_in(&network.names[0], RELAY);
    network.slow_down(3);
    let mut recordings = Vec::new();
    for host in 1..=HOSTS {
        for name in ["web", "db"] {
            let of = Run::new();
            let child = network.record(host, name, &of);
            recordings.push((format!("host{host}"), name, of, child));
        }
    }
    let sessions = || {
        let hosts = trace::directories(&relay.output());
        let sessions = hosts.iter().map(|host| trace::directories(host).len());
        sessions.sum::<usize>()
    };
    until("each recording has a session", || sessions() == 2 * HOSTS);
    network.set_link(2, "down");
    let cut = Instant::now();
    relay.kill();
    relay.restart();
    // The sender and the relay must find that out themselves.
    until("the link was down for long", || cut.elapsed() > CUT);
    network.set_link(2, "up");
    for (host, name, _run, mut child) in recordings {
        child.stdin.take().unwrap().write_all(b"q").unwrap();
        let output = child.wait_with_output().unwrap();
        assert_success(output.status, &output.stderr);
        let sessions = trace::directories(&relay.output().join(&host));
        let is_it = |path: &&std::path::PathBuf| {
            let file = path.file_name().unwrap().to_str().unwrap();
            file.starts_with(&format!("{name}-"))
        };
        let of: Vec<_> = sessions.iter().filter(is_it).collect();
        assert_eq!(of.len(), 1, "{sessions:?}");
        assert_exact(of[0], &counts(&output.stdout));
    }
}
