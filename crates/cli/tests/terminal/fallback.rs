//! Terminal sessions on a kernel without trace buffers.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use usertrace_consumer::Tracefs;
use usertrace_scenarios::server;
use usertrace_testing::relayd::Relayd;
use usertrace_testing::terminal::Terminal;
use usertrace_testing::{documents, examples};

pub(crate) const ALL: &[(&str, fn())] = &[
    ("examples_of_the_manual_work_with_the_fallback", manual),
    ("commands_of_the_documents_work_with_the_fallback", || {
        documents(None)
    }),
    ("commands_of_the_documents_work_for_user_nobody", || {
        // SAFETY: `geteuid` takes no pointers.
        if unsafe { libc::geteuid() } == 0 {
            documents(Some(65534));
        }
    }),
    ("program_is_recorded_and_its_trace_is_viewed", recorded),
    ("wrong_commands_are_explained", wrong),
    ("list_asks_running_programs_for_their_events", listed),
    ("top_follows_a_recording", top),
    ("top_restores_the_terminal", restored),
    ("top_prints_lines_without_a_terminal", batch),
    ("stat_redraws_one_state", stat),
];

fn snapshot(name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/terminal/snapshots");
    directory.join(format!("{name}.txt"))
}

fn terminal(size: (usize, usize)) -> Terminal {
    let programs = [
        ("usertrace", PathBuf::from(env!("CARGO_BIN_EXE_usertrace"))),
        (server::NAME, std::env::current_exe().unwrap()),
    ];
    Terminal::new(size, &programs, &[])
}

/// Starts to record a server into `traces`, with small sub-buffers, so that events are written
/// often.
fn record(terminal: &mut Terminal) {
    terminal.run("usertrace record -q -o traces --subbuf-size 4k -- server &");
    let traces = terminal.home().join("traces");
    terminal.until("something is recorded", |_| {
        let entries = fs::read_dir(&traces).into_iter().flatten();
        entries.flatten().any(|entry| {
            entry.path().join("main_0").exists() || entry.path().join("main_1").exists()
        })
    });
}

/// Requirements: F1, F3
fn recorded() {
    let mut terminal = terminal((120, 40));
    terminal.run("usertrace record -o traces -- server 3");
    terminal.run("usertrace view traces");
    terminal.run("usertrace view -e shop:tick traces");
    terminal.run("usertrace record -e 'shop:*,!shop:tick' --context vtid -q -o some -- server 2 && usertrace view some");
    terminal.run("usertrace top -n 1 -i 0.2 --processes -b traces");
    // An existing recording is kept.
    terminal.run("usertrace record -o traces -- server 3");
    terminal.run("usertrace record -q -- sh -c 'exit 7'; echo $?");
    terminal.run("usertrace record -- ./nothing; echo $?");
    terminal.check(&snapshot("record"));
}

/// Requirements: F1
fn wrong() {
    let mut terminal = terminal((120, 40));
    for command in [
        "usertrace recrod",
        "usertrace record",
        "usertrace record --bogus server",
        "usertrace record -p 1",
        "usertrace record -e 'a/b' -- server 1",
        "usertrace record --subbuf-size 5000 -q -o odd -- server 1; echo $?",
        "usertrace view",
        "usertrace view nothing",
        "usertrace view --from noon .",
        "usertrace list",
        "usertrace list mine",
        "usertrace list --events mine",
        "usertrace status",
        "usertrace status mine",
        "usertrace start mine",
        "usertrace stop mine",
        "usertrace destroy",
        "usertrace destroy mine",
        "usertrace filter mine 'shop:*'",
        "usertrace snapshot mine",
        "usertrace top",
        "usertrace top mine",
        "usertrace top --sort size",
        "usertrace top --interval 0",
        "usertrace ctl 1 list",
        "usertrace ctl 4194305 list",
        "usertrace extract nothing",
        "usertrace doctor | head -n 5",
    ] {
        terminal.run(command);
    }
    terminal.check(&snapshot("wrong"));
}

/// The list of events. Other traced programs run at the same time, so some of the list may be
/// unknown.
///
/// Requirements: B3
fn listed() {
    let mut terminal = terminal((120, 40));
    terminal.run("USERTRACE_CONTROL=thread USERTRACE_BACKEND=off server & asked=$!");
    terminal.run("USERTRACE_CONTROL= USERTRACE_BACKEND=off server & silent=$!");
    // The list is complete when one program has its control channel and the other one has begun.
    let said = terminal.run("while ! usertrace ctl $asked list 2>errors; do sleep 0.1; done");
    assert!(said.contains("shop:served"), "{said}");
    terminal
        .run("until usertrace list --events | grep -q \"server ($silent)\"; do sleep 0.1; done");
    let mut list = |of: &str| {
        terminal.run(&format!(
            "usertrace list --events | grep -A 4 \"server (${of})\""
        ))
    };
    let said = list("asked");
    let lines: Vec<Vec<_>> = said
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(lines[0][2..], ["2", "events"], "{said}");
    assert_eq!(lines[1], ["LEVEL", "WANTED", "EVENT", "FIELDS"], "{said}");
    let served = [
        "Info",
        "no",
        "shop:served",
        "u16",
        "status,",
        "u64",
        "bytes,",
        "str",
        "path",
    ];
    assert_eq!(lines[2], served, "{said}");
    assert_eq!(lines[3], ["Debug", "no", "shop:tick", "u32", "n"], "{said}");
    let said = list("silent");
    let reason = "has no control channel; USERTRACE_CONTROL=signal or =thread opens one";
    assert!(
        said.lines()
            .nth(1)
            .is_some_and(|line| line.contains(reason)),
        "{said}"
    );
    // A program in this terminal cannot be asked, so the status says that the list is incomplete.
    let said = terminal.run("usertrace list --events --json >list.json; echo $?");
    assert_eq!(said, "3\n");
    let json = fs::read_to_string(terminal.home().join("list.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let programs = json["programs"].as_array().unwrap();
    let has_source = |source: &str| {
        programs
            .iter()
            .any(|p| p["comm"] == "server" && p["told_by"] == source)
    };
    assert!(has_source("process") && has_source("nobody"), "{json}");
    terminal.run("kill $asked $silent");
}

/// Whether the screen has rows with rates for these events, and `foot` in its last line.
fn shows(screen: &str, events: &[&str], foot: &str) -> bool {
    let rows: Vec<Vec<&str>> = screen
        .lines()
        .skip(2)
        .map(|line| line.split_whitespace().collect())
        .filter(|words: &Vec<&str>| words.last().is_some_and(|last| last.contains("shop:")))
        .collect();
    let names: Vec<_> = rows.iter().filter_map(|row| row.last().copied()).collect();
    let is_rate = |row: &Vec<&str>| row.get(1).is_some_and(|rate| *rate != "0");
    let last = screen.trim_end().lines().last().unwrap_or_default();
    names == events && rows.iter().all(is_rate) && last.contains(foot)
}

/// Requirements: F1
fn top() {
    let mut terminal = terminal((80, 24));
    record(&mut terminal);
    terminal.enter("usertrace top -i 0.2 traces");
    let both = ["shop:served", "shop:tick"];
    let screen = terminal.until("there are rates", |screen| {
        shows(screen, &both, "sort: rate")
    });
    terminal.keep_screen("80 columns, 24 rows", &screen);
    terminal.press(&["e", "r"]);
    let turned = ["shop:tick", "shop:served"];
    let screen = terminal.until("they are sorted", |screen| {
        shows(screen, &turned, "sort: event, reversed")
    });
    terminal.keep_screen("sorted by event, reversed", &screen);
    terminal.press(&["/", "t", "i", "k"]);
    terminal.until("a filter is asked for", |screen| {
        screen.contains("have: tik_")
    });
    terminal.press(&["BSpace", "c", "k", "Enter"]);
    let screen = terminal.until("it is filtered", |screen| {
        shows(screen, &["shop:tick"], "shows: tick")
    });
    terminal.keep_screen("filtered", &screen);
    terminal.resize(40, 10);
    let screen = terminal.until("it is small", |screen| {
        // Wait for `top` to redraw: the terminal also cuts lines when it shrinks.
        let is_drawn = screen.trim_end().ends_with("shows: tick");
        is_drawn && screen.lines().count() <= 10 && shows(screen, &["shop:tick"], "shows: tick")
    });
    terminal.keep_screen("40 columns, 10 rows", &screen);
    // No line is longer than the screen; otherwise, the terminal would wrap or cut it.
    assert!(
        screen.lines().all(|line| line.chars().count() <= 40),
        "{screen}"
    );
    terminal.press(&["/"]);
    terminal.press(&["BSpace", "BSpace", "BSpace", "BSpace", "Enter"]);
    terminal.resize(120, 30);
    let screen = terminal.until("it is large", |screen| {
        screen.contains("BYTES/S") && shows(screen, &turned, "q: quit; h: help")
    });
    terminal.keep_screen("120 columns, 30 rows", &screen);
    terminal.press(&["g"]);
    terminal.until("processes are shown", |screen| screen.contains("2 events"));
    terminal.press(&["Space"]);
    let paused = terminal.until("it pauses", |screen| {
        screen.starts_with("paused: ") && screen.trim_end().ends_with("h: help")
    });
    // Longer than two intervals, in which `top` would have drawn new totals.
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert_eq!(terminal.screen(), paused);
    terminal.keep_screen("paused, a line for each process", &paused);
    terminal.press(&["Space", "h"]);
    let screen = terminal.until("there is help", |screen| {
        screen.contains("q Esc Ctrl-C") && screen.trim_end().ends_with("h: help")
    });
    terminal.keep_screen("help", &screen);
    terminal.press(&["x", "q"]);
    terminal.until("it ends", |screen| screen.trim_end().ends_with('$'));
    terminal.run("kill %1; wait");
    terminal.check(&snapshot("top"));
}

/// Requirements: F1
fn restored() {
    let mut terminal = terminal((80, 24));
    record(&mut terminal);
    let before = terminal.run("stty -g");
    let is_over = |screen: &str| screen.trim_end().ends_with("\n$");
    for keys in [&["q"][..], &["Escape"], &["C-c"]] {
        terminal.enter("usertrace top traces");
        terminal.until("it begins", |screen| screen.contains("q: quit"));
        assert!(!terminal.is_plain());
        terminal.press(keys);
        terminal.until("it ends", is_over);
        assert!(terminal.is_plain(), "{keys:?}");
        assert_eq!(terminal.run("stty -g"), before, "{keys:?}");
    }
    for (signal, status) in [("TERM", "143"), ("HUP", "129"), ("INT", "130")] {
        terminal.enter("sh -c 'echo $$ >pid; exec usertrace top traces'");
        terminal.until("it begins", |screen| screen.contains("q: quit"));
        let pid = fs::read_to_string(terminal.home().join("pid")).unwrap();
        let pid: i32 = pid.trim().parse().unwrap();
        let number = match signal {
            "TERM" => libc::SIGTERM,
            "HUP" => libc::SIGHUP,
            _ => libc::SIGINT,
        };
        // SAFETY: the signal goes to a process that this test started and has not waited for.
        assert_eq!(unsafe { libc::kill(pid, number) }, 0);
        terminal.until("it ends", is_over);
        assert!(terminal.is_plain(), "{signal}");
        assert_eq!(terminal.run("echo $?"), format!("{status}\n"), "{signal}");
        assert_eq!(terminal.run("stty -g"), before, "{signal}");
    }
    // When `top` is stopped, the shell has the terminal back.
    terminal.enter("usertrace top traces");
    terminal.until("it begins", |screen| screen.contains("q: quit"));
    terminal.press(&["C-z"]);
    terminal.until("it stops", is_over);
    assert!(terminal.is_plain());
    assert_eq!(terminal.run("stty -g"), before);
    terminal.enter("fg");
    terminal.until("it goes on", |screen| screen.contains("q: quit"));
    assert!(!terminal.is_plain());
    terminal.press(&["q"]);
    terminal.until("it ends", is_over);
    // The message of a panic is on the normal screen.
    let said = terminal.run("usertrace top --panic traces");
    assert!(
        said.contains("panicked at") && said.contains("as it was told to"),
        "{said}"
    );
    assert!(terminal.is_plain());
    assert_eq!(terminal.run("stty -g"), before);
    terminal.run("kill %1; wait");
}

/// Requirements: F1
fn batch() {
    let mut terminal = terminal((80, 24));
    terminal.run("usertrace record -q -o traces -- server 20");
    terminal.run("usertrace top -n 1 -i 0.1 traces | cat");
    terminal.run("usertrace top -b -n 1 -i 0.1 -e '!shop:tick' --sort total traces");
    let said = terminal.run("usertrace top --json traces | tail -n 1 >line; wc -l <line");
    assert_eq!(said, "1\n");
    let line = fs::read_to_string(terminal.home().join("line")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&line).unwrap();
    let total = |event: &str| -> u64 {
        let rows = json["rows"].as_array().unwrap();
        let of_event = rows.iter().find(|row| row["event"] == event);
        of_event.and_then(|row| row["total"].as_u64()).unwrap()
    };
    // Each event in the files is counted once.
    assert_eq!((total("shop:served"), total("shop:tick")), (20, 2));
    // A reader that closes the pipe ends `top`.
    terminal.run("usertrace top -b -i 0.1 traces | head -n 1");
    terminal.check(&snapshot("batch"));
}

/// `usertrace stat --interval` draws each state over the one before it, also in a terminal that is
/// smaller than the state.
///
/// Requirements: E7, F1
fn stat() {
    for size in [(80, 24), (40, 6)] {
        let mut terminal = terminal(size);
        let command = "usertrace stat -i 0.1 -e 'shop:served hist(bytes)' -- server";
        terminal.enter(command);
        let count = |screen: &str| -> Option<u64> {
            let rows = screen
                .lines()
                .filter(|line| line.starts_with("shop:served "));
            // The title of the histogram begins likewise.
            let mut counts = rows.filter_map(|row| row.split_whitespace().nth(2)?.parse().ok());
            let count = counts.next();
            // A state that is not drawn over would be there twice.
            assert_eq!(counts.next(), None, "{screen}");
            count
        };
        let mut last = 0;
        for _ in 0..5 {
            let screen = terminal.until("it counts on", |screen| count(screen) > Some(last));
            last = count(&screen).unwrap();
            if size.1 > 20 {
                assert!(screen.contains(command), "{screen}");
            }
        }
        terminal.press(&["C-c"]);
        terminal.until("it ends", |screen| screen.trim_end().ends_with("\n$"));
        assert!(terminal.is_plain());
    }
}

/// The commands of README and the documents, typed as they stand there.
///
/// Requirements: F1, F3
fn documents(user: Option<u32>) {
    let usertrace = PathBuf::from(env!("CARGO_BIN_EXE_usertrace"));
    let libraries = usertrace.parent().unwrap().to_owned();
    let is_built = libraries.join("libusertrace_malloc.so").exists();
    let environment = documents::Environment {
        repository: &Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."),
        server: std::env::current_exe().unwrap(),
        libraries: is_built.then_some(libraries),
        usertrace,
        is_patched: false,
        user,
    };
    let done = documents::check(&environment, &|| ());
    assert!(done > 15, "{done}");
}

/// The examples of the manual, typed as they stand there, work, or say that they need another
/// kernel.
///
/// Requirements: F1, F3
fn manual() {
    let mut done = 0;
    for command in examples::COMMANDS {
        for line in examples::of(Path::new(env!("CARGO_BIN_EXE_usertrace")), command) {
            // This build has no libraries to preload; the tests in the guest have them.
            let preloads = examples::needs_preload(command, &line);
            if !examples::needs_crash(&line) && !preloads {
                example(command, &line);
                done += 1;
            }
        }
    }
    assert!(done > 35, "{done}");
}

fn example(command: &str, line: &str) {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    fs::create_dir(at("bin")).unwrap();
    symlink(env!("CARGO_BIN_EXE_usertrace"), at("bin/usertrace")).unwrap();
    symlink(std::env::current_exe().unwrap(), at("server")).unwrap();
    fs::write(at("Makefile"), "all:\n\t./server 3\n").unwrap();
    let run = |line: &str| examples::run(line, directory.path(), &[]);
    if examples::reads_traces(command, line) {
        let (status, said) = run(&examples::prepare_traces(command));
        assert_eq!(status, Some(0), "{said}");
    }
    let mut line = line.to_owned();
    let relay = examples::needs_relay(&line).then(Relayd::start);
    if let Some(relay) = &relay {
        line = examples::with_relay(&line, &relay.address());
    }
    // Write to other directories than the system's.
    for (system, own) in [
        ("/usr/local/share/man/man1", "man1"),
        ("/etc/bash_completion.d/usertrace", "completion"),
    ] {
        line = line.replace(system, own);
    }
    let takes_kernel = line.contains("mine")
        || line.contains("-p 4711")
        || line == "usertrace list"
        || line.starts_with("usertrace save")
        || line == "usertrace top";
    if line.contains("ctl 4711") || examples::is_of_fallback(command, &line) {
        // The program of the example runs already.
        line = examples::beside_program(&line);
    }
    let (status, said) = run(&line);
    if takes_kernel {
        let names_it = ["trace buffers", "patched kernel"]
            .iter()
            .any(|what| said.contains(what));
        assert!(names_it, "{line}: {said}");
        return;
    }
    if line.contains("--kernel") && Tracefs::find().is_err() {
        // This user may have no access to the kernel's buffers.
        assert_eq!(status, Some(125), "{line}: {said}");
        assert!(said.contains("trac"), "{line}: {said}");
        return;
    }
    let expected = examples::statuses(command, &line);
    assert!(
        status.is_some_and(|status| expected.contains(&status)),
        "{line}: {status:?}: {said}"
    );
    for wrong in ["error:", "panicked", "not found", "usertrace: cannot"] {
        assert!(
            !said.contains(wrong) || command == "doctor",
            "{line}: {said}"
        );
    }
}
