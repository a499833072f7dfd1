//! Three hosts with a relay between them, whose network fails: network namespaces with a bridge
//! (E8, A10, D3). They need root.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::relay::{self, Counts};
use super::run::{Run, VARIABLE, assert_success};
use super::trace;
use usertrace_testing::counts::counts;
use usertrace_testing::relayd::{LiveViewer, Relayd};
use usertrace_testing::wait::until;

/// The relay's address.
const RELAY: &str = "10.77.0.1";
const HOSTS: usize = 3;
/// The traces of each host.
const TRACES: [&str; 2] = ["web", "db"];

/// Runs a command, with its words separated by blanks. Returns what it said, if it failed.
fn try_run(command: &str) -> Result<(), String> {
    let mut words = command.split(' ');
    let output = Command::new(words.next().unwrap()).args(words).output();
    let output = output.map_err(|error| format!("{command}: {error}"))?;
    let said = || String::from_utf8_lossy(&output.stderr).trim().to_owned();
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{command}: {}", said())),
    }
}

fn run(command: &str) {
    try_run(command).unwrap();
}

/// Network namespaces, which go with this.
struct Network {
    names: Vec<String>,
}

impl Network {
    /// A namespace with a bridge, and one for each host, linked to it. None without root.
    fn new(test: &str) -> Option<Self> {
        // SAFETY: `geteuid` takes no pointers.
        if unsafe { libc::geteuid() } != 0 {
            println!("skipped: only root can make network namespaces");
            return None;
        }
        let id = std::process::id();
        let names = (0..=HOSTS).map(|n| format!("usertrace-{test}-{id}-{n}"));
        let network = Self {
            names: names.collect(),
        };
        for name in &network.names {
            run(&format!("ip netns add {name}"));
            run(&format!("ip -n {name} link set lo up"));
        }
        let relay = &network.names[0];
        run(&format!("ip -n {relay} link add br0 type bridge"));
        run(&format!("ip -n {relay} addr add {RELAY}/24 dev br0"));
        run(&format!("ip -n {relay} link set br0 up"));
        for (n, host) in network.names.iter().enumerate().skip(1) {
            let peer = format!("type veth peer name eth0 netns {host}");
            run(&format!("ip -n {relay} link add port{n} {peer}"));
            run(&format!("ip -n {relay} link set port{n} master br0 up"));
            run(&format!(
                "ip -n {host} addr add 10.77.0.{}/24 dev eth0",
                n + 1
            ));
            run(&format!("ip -n {host} link set eth0 up"));
        }
        Some(network)
    }

    /// Cuts the link of a host, or restores it.
    fn set_link(&self, host: usize, state: &str) {
        let relay = &self.names[0];
        run(&format!("ip -n {relay} link set port{host} {state}"));
    }

    /// Makes the link of a host slow.
    ///
    /// # Errors
    /// If the kernel has no `sch_tbf`.
    fn slow_down(&self, host: usize) -> Result<(), String> {
        let host = &self.names[host];
        let limit = "tbf rate 8mbit burst 32k latency 400ms";
        try_run(&format!(
            "ip netns exec {host} tc qdisc add dev eth0 root {limit}"
        ))
    }

    /// A command on a host, which has a name of its own.
    fn command(&self, host: usize) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.names[host]]);
        command.args(["unshare", "--uts", "sh", "-c", "hostname $0; exec \"$@\""]);
        command.args([&format!("host{host}"), env!("CARGO_BIN_EXE_usertrace")]);
        command
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for name in &self.names {
            // There is nobody to report a failure to.
            let _ = try_run(&format!("ip netns del {name}"));
        }
    }
}

/// `usertrace record --relay` of a program on a host.
struct Recording {
    host: usize,
    name: &'static str,
    run: Run,
    child: Child,
}

impl Recording {
    fn start(
        network: &Network,
        host: usize,
        name: &'static str,
        options: &[&str],
        program: &str,
    ) -> Self {
        let run = Run::new();
        let mut command = network.command(host);
        command.args(["record", "--trace", name, "-o"]);
        command.arg(run.path().join("spool"));
        command.args(["--relay", &format!("tcp://{RELAY}")]);
        command.args(["--relay-wait", "2min"]).args(options);
        command.arg("--").arg(std::env::current_exe().unwrap());
        command.env(VARIABLE, program);
        let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let child = pipes.stderr(Stdio::piped()).spawn().unwrap();
        Self {
            host,
            name,
            run,
            child,
        }
    }

    /// Starts a recording of each trace on each host.
    fn start_all(network: &Network, options: &[&str], program: &str) -> Vec<Self> {
        let hosts = (1..=HOSTS).flat_map(|host| TRACES.map(|name| (host, name)));
        hosts
            .map(|(host, name)| Self::start(network, host, name, options, program))
            .collect()
    }

    /// Writes to the program's input.
    fn tell(&mut self, text: &str) {
        let stdin = self.child.stdin.as_mut().unwrap();
        stdin.write_all(text.as_bytes()).unwrap();
    }

    /// Ends the program, and waits for the recorder.
    fn end(&mut self) -> Counts {
        self.tell("q");
        self.wait()
    }

    /// Waits for the recorder of a program that was told to end.
    fn wait(&mut self) -> Counts {
        drop(self.child.stdin.take());
        let read = |mut from: Box<dyn std::io::Read>| {
            let mut bytes = Vec::new();
            from.read_to_end(&mut bytes).unwrap();
            bytes
        };
        let stdout = read(Box::new(self.child.stdout.take().unwrap()));
        let stderr = read(Box::new(self.child.stderr.take().unwrap()));
        assert_success(self.child.wait().unwrap(), &stderr);
        relay::counts(&stdout)
    }

    /// Kills the recorder, ends the program, and sends the rest.
    fn kill_and_send(&mut self, network: &Network) -> Counts {
        // Waiting would close it.
        let mut stdin = self.child.stdin.take().unwrap();
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        stdin.write_all(b"q").unwrap();
        let mut stdout = Vec::new();
        let mut pipe = self.child.stdout.take().unwrap();
        pipe.read_to_end(&mut stdout).unwrap();
        let mut send = network.command(self.host);
        send.arg("send").arg(self.run.path().join("spool"));
        let sent = send.arg(format!("tcp://{RELAY}")).output().unwrap();
        assert_success(sent.status, &sent.stderr);
        relay::counts(&stdout)
    }

    /// Its session's directory, if there is one.
    fn session(&self, relay: &Relayd) -> Option<PathBuf> {
        let host = relay.output().join(format!("host{}", self.host));
        let entries = fs::read_dir(host).into_iter().flatten().flatten();
        let start = format!("{}-", self.name);
        let is_it = |path: &PathBuf| {
            let name = path.file_name().unwrap().to_str().unwrap();
            name.starts_with(&start)
        };
        let mut sessions = entries.map(|entry| entry.path()).filter(is_it);
        let session = sessions.next();
        assert!(sessions.next().is_none(), "two sessions of one recording");
        session
    }

    /// Chunks that the relay has begun.
    fn chunks(&self, relay: &Relayd) -> usize {
        let session = self.session(relay);
        session.map_or(0, |session| trace::directories(&session).len())
    }

    /// Asserts that the relay has each event of the recording once.
    fn assert_exact(&self, relay: &Relayd, counts: &Counts) {
        relay::assert_exact(&self.session(relay).unwrap(), counts);
    }
}

/// The relay is killed while one host cannot reach it. Another one has a slow link, and a recorder
/// is killed.
pub(crate) fn three_hosts_have_each_event_once_whatever_breaks() {
    let Some(network) = Network::new("breaks") else {
        return;
    };
    let mut relay = Relayd::start_in(&network.names[0], RELAY);
    if let Err(why) = network.slow_down(HOSTS) {
        println!("no link is slow: {why}");
    }
    let options = ["--subbuf-size", "64k", "--relay-spool", "4M"];
    let mut recordings = Recording::start_all(&network, &options, "slow_steps");
    let all_have = |recordings: &[Recording], relay: &Relayd, chunks: usize| {
        recordings.iter().all(|of| of.chunks(relay) >= chunks)
    };
    until("each recording has a session", || {
        all_have(&recordings, &relay, 1)
    });
    network.set_link(2, "down");
    let cut = Instant::now();
    relay.kill();
    relay.restart();
    // Longer than the sender waits for an answer, in the full tier.
    let long = Duration::from_secs(counts(3, 20));
    until("the link was down for long", || cut.elapsed() > long);
    network.set_link(2, "up");
    let mut killed = recordings.remove(0);
    let counts = killed.kill_and_send(&network);
    killed.assert_exact(&relay, &counts);
    until("all go on", || all_have(&recordings, &relay, 2));
    for recording in &mut recordings {
        let counts = recording.end();
        recording.assert_exact(&relay, &counts);
    }
}

pub(crate) fn three_hosts_are_read_live() {
    let Some(network) = Network::new("live") else {
        return;
    };
    let relay = Relayd::start_in(&network.names[0], RELAY);
    let options = ["--live", "--rotate-size", "128k"];
    let mut recordings = Recording::start_all(&network, &options, "on_request");
    let all_have_sessions = || recordings.iter().all(|of| of.session(&relay).is_some());
    until("each recording has a session", all_have_sessions);
    let mut viewers: Vec<_> = recordings
        .iter()
        .map(|of| LiveViewer::start(&relay, &format!("host{}", of.host), of.name))
        .collect();
    until("the viewers have attached", || {
        relay.log().matches("Attach session ID").count() == recordings.len()
    });
    recordings.iter_mut().for_each(|of| of.tell("w"));
    for viewer in &mut viewers {
        viewer.wait_for_events(&relay, relay::LIVE as usize);
    }
    recordings.iter_mut().for_each(|of| of.tell("q"));
    for (mut recording, viewer) in recordings.into_iter().zip(viewers) {
        let counts = recording.wait();
        let session = recording.session(&relay).unwrap();
        relay::assert_same(&viewer.end(), &session);
        relay::assert_exact(&session, &counts);
    }
}
