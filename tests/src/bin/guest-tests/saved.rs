//! Settings of traces in files: `usertrace save`, `load`, and `daemon --load`.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use usertrace_testing::babeltrace;
use usertrace_testing::wait;
use usertrace_tests::control::{Trace, remove_all};
use usertrace_tests::program;
use usertrace_tests::random::Random;
use usertrace_tests::running::Running;

use crate::{Case, cases};

pub(crate) const ON_ONE_KERNEL: &[Case] = cases![
    saved_trace_is_the_same_after_load,
    text_of_a_saved_trace_has_its_settings,
    refused_file_names_its_line_and_leaves_no_trace,
    rings_that_fill_a_slot_are_loaded,
    daemon_loads_each_good_file,
];

/// Runs the command in a directory, and returns its status and its output.
fn usertrace(directory: &Path, arguments: &[&str]) -> (i32, String) {
    let mut command = Command::new(program::path("usertrace"));
    let output = command.args(arguments).current_dir(directory).output();
    let output = output.expect("it runs");
    let said = String::from_utf8([output.stdout, output.stderr].concat()).expect("text");
    (output.status.code().expect("not killed"), said)
}

/// Runs the command, which must succeed, and returns its output.
fn done(directory: &Path, arguments: &[&str]) -> String {
    let (status, said) = usertrace(directory, arguments);
    assert_eq!(status, 0, "{arguments:?}: {said}");
    said
}

/// The names of all traces.
fn names() -> BTreeSet<String> {
    let entries = fs::read_dir(usertrace_tests::control::ROOT).expect("it is mounted");
    let entries = entries.map(|entry| entry.expect("an entry"));
    let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    directories
        .map(|entry| entry.file_name().into_string().expect("text"))
        .collect()
}

/// One of these.
fn one<'a>(random: &mut Random, of: &[&'a str]) -> &'a str {
    of[random.below(of.len() as u64) as usize]
}

/// Writes random settings to a trace. The kernel refuses some of them, which then stay as they are.
fn set_up(trace: &Trace, random: &mut Random) {
    let channels = ["zoo", "a", "m.x", "B@2", "main", "control"];
    let mut order: Vec<_> = (0..channels.len()).collect();
    for n in (1..order.len()).rev() {
        order.swap(n, random.below(n as u64 + 1) as usize);
    }
    let mut files = vec![String::new()];
    for channel in order.into_iter().take(4).map(|n| channels[n]) {
        if !["main", "control"].contains(&channel) {
            fs::create_dir(trace.path().join(channel)).expect("a channel");
        }
        files.push(format!("{channel}/"));
    }
    for _ in 0..random.below(40) {
        let directory = &files[random.below(files.len() as u64) as usize];
        let power = |random: &mut Random, from: u32, to: u32| {
            (1u64 << (u64::from(from) + random.below(u64::from(to - from)))).to_string()
        };
        let (file, value) = match random.below(12) {
            0 => ("subbuf_size", power(random, 12, 21)),
            1 => ("subbuf_count", power(random, 1, 7)),
            2 => (
                "scope",
                one(random, &["cpu", "mm_cid", "thread", "global"]).to_owned(),
            ),
            3 => (
                "mode",
                one(random, &["discard", "overwrite", "block", "count"]).to_owned(),
            ),
            4 => ("prefault", one(random, &["0", "1"]).to_owned()),
            5 => {
                let contexts = ["vpid vtid", "", "ip app.user", "procname", "cpu_id mnt_ns"];
                ("contexts", one(random, &contexts).to_owned())
            }
            6 => ("filter_mask", (random.word() as u32).to_string()),
            8 => ("value", one(random, &["size", "0", "_n"]).to_owned()),
            9 => (
                "key",
                one(random, &["path", "", "$ctx.app.user", "$ctx.vtid"]).to_owned(),
            ),
            7 => {
                let triggers = [
                    "a:* if n >= 500 then stop once",
                    "b then notify every 3",
                    r#"c if text == "if then stop" then snapshot"#,
                    "0",
                ];
                let _ = trace.write("triggers", one(random, &triggers));
                continue;
            }
            _ => {
                let lines = [
                    "0",
                    "1",
                    "a:*",
                    "!a:*",
                    "b",
                    "!*",
                    "!b:c?",
                    "a:* !a:b",
                    "x-y.z:_",
                    "a:* if n >= 500 && $ctx.vtid != 1",
                    r#"!b if text == "\"if ø" || (n == 1)"#,
                ];
                ("filter", one(random, &lines).to_owned())
            }
        };
        let _ = trace.write(&format!("{directory}{file}"), &value);
    }
    match random.below(4) {
        0 => trace.write("allocate", "1").expect("room for the rings"),
        1 => trace.start(),
        2 => {
            trace.start();
            trace.stop();
        }
        _ => {}
    }
}

/// For random settings. `--replace` gives the same, too.
///
/// Requirements: E2, E3, E4
fn saved_trace_is_the_same_after_load() {
    remove_all();
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    for _ in 0..12 {
        let mut random = Random::new();
        let seed = format!("{random:?}");
        let trace = Trace::create("mine");
        set_up(&trace, &mut random);
        let saved = done(path, &["save", "mine"]);
        fs::write(path.join("mine.toml"), &saved).expect("a file");
        trace.try_remove().expect("it is there");
        done(path, &["load", "mine.toml"]);
        assert_eq!(done(path, &["save"]), saved, "{seed}");
        let (status, said) = usertrace(path, &["load", "mine.toml"]);
        assert_eq!(status, 1);
        assert!(said.contains("there is already a trace \"mine\""), "{said}");
        done(path, &["load", "--replace", "mine.toml"]);
        assert_eq!(done(path, &["save"]), saved, "{seed}");
    }
}

/// The channels come in the order in which an event is offered to them, also if programs have them.
///
/// Requirements: E2, E4
fn text_of_a_saved_trace_has_its_settings() {
    remove_all();
    let directory = tempfile::tempdir().expect("a directory");
    let trace = Trace::create("mine");
    // A name that was looked for does not change the order.
    assert!(!trace.path().join("a").exists());
    for channel in ["slow", "a", "z"] {
        fs::create_dir(trace.path().join(channel)).expect("a channel");
    }
    for (file, value) in [
        ("filter", "0 test:* !test:other"),
        ("main/mode", "overwrite"),
        ("main/contexts", "vpid procname"),
        ("main/subbuf_size", "8192"),
        ("slow/filter", "disk:*"),
        ("slow/filter_mask", "0xff"),
        ("slow/scope", "global"),
        ("a/prefault", "1"),
    ] {
        trace.write(file, value).expect(file);
    }
    let rest = "
[[trace.channel]]
name = \"main\"
mode = \"overwrite\"
scope = \"cpu\"
subbuf_size = \"8k\"
subbuf_count = 16
contexts = [\"vpid\", \"procname\"]

[[trace.channel]]
name = \"slow\"
filter = [\"disk:*\"]
filter_mask = 0x000000ff
mode = \"discard\"
scope = \"global\"
subbuf_size = \"256k\"
subbuf_count = 16

[[trace.channel]]
name = \"a\"
filter = []
mode = \"discard\"
scope = \"cpu\"
subbuf_size = \"256k\"
subbuf_count = 16
prefault = true

[[trace.channel]]
name = \"z\"
filter = []
mode = \"discard\"
scope = \"cpu\"
subbuf_size = \"256k\"
subbuf_count = 16
";
    let expected = |started: bool| {
        // `mkdir` leaves the kernel's default in `control`, which is not that of `load`.
        let control = "
[[trace.channel]]
name = \"control\"
subbuf_size = \"64k\"
subbuf_count = 4
";
        format!(
            "[[trace]]\nname = \"mine\"\nstarted = {started}\nfilter = [\n  \"test:*\",\n  \"!test:other\",\n]\n{control}{rest}"
        )
    };
    let saved = || {
        let saved = done(directory.path(), &["save", "mine"]);
        let at = saved.find("[[trace]]").expect("a trace");
        assert!(saved[..at].contains("\nversion = 1\n"), "{saved}");
        saved[at..].to_owned()
    };
    assert_eq!(saved(), expected(false));
    trace.start();
    let mut numbered = Command::new(program::path("numbered"));
    assert!(
        numbered
            .args(["--events", "3"])
            .status()
            .expect("it runs")
            .success()
    );
    assert!(!trace.consumer_files("slow").is_empty());
    assert_eq!(saved(), expected(true));
}

/// Also the traces that the kernel took before are removed, and replaced traces stay.
///
/// Requirements: E1, E4
fn refused_file_names_its_line_and_leaves_no_trace() {
    remove_all();
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    let head =
        "version = 1\n[[trace]]\nname = \"good\"\nstarted = true\n[[trace]]\nname = \"mine\"\n";
    let main = "[[trace.channel]]\nname = \"main\"\n";
    let many = |n: usize, what: fn(usize) -> String| (0..n).map(what).collect::<String>();
    let channels = many(15, |n| format!("[[trace.channel]]\nname = \"c{n}\"\n"));
    let traces = many(17, |n| format!("[[trace]]\nname = \"t{n}\"\n"));
    let rules = many(20, |n| format!("\"{}{n:02}\", ", "x".repeat(240)));
    for (text, line, words) in [
        (
            "filter = [\"a:*\",\n\"a/b\"]\n".to_owned(),
            7,
            ["filter of trace \"mine\"", "\"a/b\""],
        ),
        (
            format!("filter = [{rules}]\n"),
            7,
            ["filter of trace \"mine\"", "No space left"],
        ),
        (
            format!("{main}mode = \"undo\"\n"),
            9,
            ["mode of channel \"main\"", "\"undo\""],
        ),
        (
            format!("{main}scope = \"gpu\"\n"),
            9,
            ["scope of channel \"main\"", "\"gpu\""],
        ),
        (
            format!("{main}subbuf_size = 5000\n"),
            9,
            ["subbuf_size of channel \"main\"", "\"5000\""],
        ),
        (
            format!("{main}subbuf_count = 3\n"),
            9,
            ["subbuf_count of channel \"main\"", "\"3\""],
        ),
        (
            format!("{main}subbuf_count = 1024\nsubbuf_size = \"1M\"\n"),
            10,
            ["subbuf_size", "\"1048576\""],
        ),
        (
            format!("{main}contexts = [\"vpid\", \"no\"]\n"),
            9,
            ["contexts of channel", "\"vpid no\""],
        ),
        (channels, 36, ["channel \"c14\"", "No space left"]),
        (traces, 36, ["trace \"t14\"", "No space left"]),
    ] {
        fs::write(path.join("new.toml"), format!("{head}{text}")).expect("a file");
        let before = names();
        let (status, said) = usertrace(path, &["load", "new.toml"]);
        assert_eq!(status, 1, "{text}: {said}");
        let begin = format!("usertrace: new.toml:{line}: ");
        assert!(said.starts_with(&begin), "{begin}: {said}");
        for word in words {
            assert!(said.contains(word), "{word}: {said}");
        }
        assert_eq!(names(), before, "{text}");
        if text.contains("[[trace]]") {
            continue;
        }
        let existing = Trace::started("mine");
        existing.write("filter", "0 old:*").expect("a filter");
        let saved = done(path, &["save", "mine"]);
        let generation = existing.stats().generation;
        assert_eq!(
            usertrace(path, &["load", "--replace", "new.toml"]).0,
            1,
            "{text}"
        );
        assert_eq!(done(path, &["save"]), saved, "{text}");
        assert_eq!(existing.stats().generation, generation, "{text}");
    }
}

/// Steps in between need no more room than the result: while the first channels take most of a
/// slot, the others are not as large as the kernel makes them.
///
/// Requirements: E2
fn rings_that_fill_a_slot_are_loaded() {
    remove_all();
    let directory = tempfile::tempdir().expect("a directory");
    let mut text = String::from("version = 1\n[[trace]]\nname = \"mine\"\nstarted = false\n");
    let mut channel = |name: &str, scope: &str, size: &str, count: u32| {
        let _ = write!(
            text,
            "[[trace.channel]]\nname = \"{name}\"\nscope = \"{scope}\"\nsubbuf_size = \"{size}\"\nsubbuf_count = {count}\n"
        );
    };
    // Of the slot's 1024 MiB, 64 rings of threads take 512, 256, 128 and 64. Ten channels of the
    // kernel's default size, 4 MiB for each of at least two CPUs, have no room beside them.
    for (name, size, count) in [
        ("main", "1M", 8),
        ("x", "1M", 4),
        ("y", "1M", 2),
        ("z", "512k", 2),
    ] {
        channel(name, "thread", size, count);
    }
    for name in ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"] {
        channel(name, "cpu", "4k", 2);
    }
    fs::write(directory.path().join("mine.toml"), &text).expect("a file");
    done(directory.path(), &["load", "mine.toml"]);
    let saved = done(directory.path(), &["save"]);
    assert_eq!(saved.matches("scope = \"thread\"").count(), 4, "{saved}");
    assert_eq!(saved.matches("subbuf_size = \"4k\"").count(), 10, "{saved}");
}

/// A wrong file does not keep the others from being loaded. The next daemon leaves what it finds.
///
/// Requirements: C5, E1
fn daemon_loads_each_good_file() {
    remove_all();
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    let traces = path.join("traces.d");
    fs::create_dir_all(traces.join("dir.toml")).expect("a directory");
    let good = |name: &str| format!("version = 1\n[[trace]]\nname = \"{name}\"\n");
    for (file, text) in [
        ("a.toml", good("mine") + "filter = [\"a/b\"]\n"),
        ("b.toml", good("mine") + "filter = [\"test:*\"]\n"),
        ("c.toml", good("mine")),
        ("d.toml", good("later") + "started = false\n"),
        ("e.toml", "version = 2\n".to_owned()),
        (".f.toml", good("hidden")),
        ("g.toml.old", good("old")),
    ] {
        fs::write(traces.join(file), text).expect("a file");
    }
    let daemon = |log: &str| {
        let mut command = Command::new(program::path("usertrace"));
        command.args(["daemon", "--load", "traces.d", "--output", "out"]);
        let log = fs::File::create(path.join(log)).expect("a file");
        Running::start(command.current_dir(path).stderr(log))
    };
    let said = |log: &str| fs::read_to_string(path.join(log)).expect("a log");
    let mut first = daemon("first");
    wait::until("it records", || path.join("out/mine").exists());
    assert_eq!(names(), ["later", "mine"].map(str::to_owned).into());
    let log = said("first");
    for line in [
        "traces.d/a.toml:4: filter of trace \"mine\"",
        "mine: created from traces.d/b.toml",
        "mine: exists already, not loaded from traces.d/c.toml",
        "later: created from traces.d/d.toml",
        "traces.d/e.toml:1: version",
        "cannot load traces.d/dir.toml: it is not a regular file",
    ] {
        assert!(log.contains(line), "{line}: {log}");
    }
    let mut numbered = Command::new(program::path("numbered"));
    assert!(
        numbered
            .args(["--events", "3"])
            .status()
            .expect("it runs")
            .success()
    );
    let generation = || {
        let stats = fs::read_to_string("/sys/kernel/ltt/mine/stats").expect("a trace");
        let line = stats.lines().find(|line| line.starts_with("generation "));
        line.expect("a generation").to_owned()
    };
    let before = generation();
    let end = |daemon: &mut Running| {
        // SAFETY: the signal goes to a child that was not waited for.
        unsafe { libc::kill(daemon.0.id().cast_signed(), libc::SIGTERM) };
        assert!(daemon.wait().success());
    };
    end(&mut first);
    assert_eq!(babeltrace::read(&path.join("out/mine")).events.len(), 3);
    done(path, &["stop", "mine"]);
    let mut second = daemon("second");
    let line = "mine: exists already, not loaded from traces.d/b.toml";
    // It takes signals by then.
    wait::until("it records", || {
        said("second").contains("mine: recorded to")
    });
    assert!(said("second").contains(line), "{}", said("second"));
    end(&mut second);
    assert_eq!(generation(), before);
    assert!(done(path, &["save", "mine"]).contains("started = false"));
    remove_all();
}
