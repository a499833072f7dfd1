//! A terminal in which somebody types, as a new user would: `tmux`, with a server of the test's own, which ends with the test.
//!
//! What is to be seen is kept in files, with everything taken out that is not the same each time. Where it differs, the test
//! fails and says how; with `USERTRACE_KEEP=DIR` in the environment, what is seen is written there, to be looked at, and kept.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long anything may take. Only a failing test waits so long.
const LIMIT: Duration = Duration::from_secs(120);

const STEP: Duration = Duration::from_millis(20);

/// A shell in a terminal, in a directory of its own.
pub struct Terminal {
    /// Has the socket, and what is typed about.
    directory: tempfile::TempDir,
    server: Child,
    /// What was typed, and what was to be seen.
    seen: String,
}

impl Terminal {
    /// One of this size, with these programs by these names, and nothing else but the system's, and these variables.
    pub fn new(
        (columns, rows): (usize, usize),
        programs: &[(&str, PathBuf)],
        variables: &[(&str, &str)],
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let bin = directory.path().join("bin");
        let home = directory.path().join("home");
        for made in [&bin, &home] {
            fs::create_dir(made).unwrap();
        }
        for (name, program) in programs {
            symlink(program, bin.join(name)).unwrap();
        }
        // Read by shells that are interactive; root's prompt is another one.
        fs::write(directory.path().join("shellrc"), "PS1='$ '\n").unwrap();
        let mut server = Command::new("tmux");
        server
            .args(["-D", "-f", "/dev/null", "-S"])
            .arg(directory.path().join("socket"))
            .env_clear()
            .env("PATH", path(directory.path()))
            .env("LC_ALL", "C.UTF-8")
            .env("TZ", "UTC")
            .env("TERM", "xterm-256color")
            .env("ENV", directory.path().join("shellrc"))
            .env("HOME", &home)
            .envs(variables.iter().copied())
            .current_dir(&home)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        // SAFETY: a call with numbers, which may be made there. However the test ends, its server ends, too.
        unsafe {
            server.pre_exec(|| {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
                Ok(())
            });
        }
        let server = server.spawn().unwrap_or_else(|error| {
            panic!("tmux: {error} (Debian's package tmux; scripts/setup installs it)")
        });
        let terminal = Self {
            directory,
            server,
            seen: String::new(),
        };
        let begun = Instant::now();
        while let Err(error) = terminal.ask(&["set-option", "-g", "status", "off"]) {
            assert!(begun.elapsed() < LIMIT, "tmux does not begin: {error}");
            sleep(STEP);
        }
        terminal.tmux(&["set-option", "-g", "history-limit", "5000"]);
        let (columns, rows) = (columns.to_string(), rows.to_string());
        terminal.tmux(&[
            "new-session",
            "-d",
            "-x",
            &columns,
            "-y",
            &rows,
            "-c",
            home.to_str().unwrap(),
            "exec sh",
        ]);
        terminal.until("there is a prompt", |screen| screen.trim_end() == "$");
        terminal
    }

    /// Where the shell is.
    pub fn home(&self) -> PathBuf {
        self.directory.path().join("home")
    }

    fn tmux(&self, arguments: &[&str]) -> String {
        let said = self.ask(arguments);
        said.unwrap_or_else(|error| panic!("tmux {arguments:?}: {error}"))
    }

    /// What the server says, or why it does not do it.
    fn ask(&self, arguments: &[&str]) -> Result<String, String> {
        let output = Command::new("tmux")
            // What a client has is what its session gets.
            .env("PATH", path(self.directory.path()))
            .arg("-S")
            .arg(self.directory.path().join("socket"))
            .args(arguments)
            .output()
            .map_err(|error| error.to_string())?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }

    /// What is on the screen.
    pub fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// Waits for that, and gives the screen.
    pub fn until(&self, what: &str, is_so: impl Fn(&str) -> bool) -> String {
        let begun = Instant::now();
        loop {
            let screen = self.screen();
            if is_so(&screen) {
                return screen;
            }
            assert!(
                begun.elapsed() < LIMIT,
                "waited in vain until {what}:\n{screen}"
            );
            sleep(STEP);
        }
    }

    /// Presses keys, as `tmux` calls them.
    pub fn press(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    /// Types a line, without waiting for what comes of it.
    pub fn enter(&self, line: &str) {
        self.tmux(&["send-keys", "-l", line]);
        self.press(&["Enter"]);
    }

    /// All that was ever to be seen, but on screens that are gone, with lines that were too long in one piece.
    fn history(&self) -> String {
        self.tmux(&["capture-pane", "-p", "-J", "-S", "-"])
    }

    fn prompts(history: &str) -> usize {
        let lines = history.lines();
        lines
            .filter(|line| line.trim_end() == "$" || line.starts_with("$ "))
            .count()
    }

    /// Types a command, waits for its end, and gives what it said.
    pub fn run(&mut self, command: &str) -> String {
        let before = Self::prompts(&self.history());
        self.enter(command);
        self.ended(before, command)
    }

    /// Waits for the end of a command, before which there were so many prompts.
    fn ended(&mut self, before: usize, command: &str) -> String {
        let begun = Instant::now();
        let history = loop {
            let history = self.history();
            let last = history.trim_end().lines().last().unwrap_or_default();
            if Self::prompts(&history) > before && last == "$" {
                break history;
            }
            assert!(
                begun.elapsed() < LIMIT,
                "{command} does not end:\n{history}"
            );
            sleep(STEP);
        };
        let prompt = format!("\n$ {command}");
        let from = format!("\n{history}");
        let said = from
            .rfind(&prompt)
            .map_or("", |at| &from[at + prompt.len()..]);
        let said = said
            .trim_end()
            .trim_end_matches('$')
            .trim_start_matches([' ', '\n']);
        let said: String = said
            .lines()
            .map(|line| format!("{}\n", line.trim_end()))
            .collect();
        let _ = write!(self.seen, "$ {command}\n{}", self.same(&said));
        said
    }

    /// Keeps a screen, too. Pass the one that [`Self::until`] returned: a later one may differ.
    pub fn keep_screen(&mut self, what: &str, screen: &str) {
        let screen: String = screen
            .trim_end()
            .lines()
            .map(|line| format!("| {}\n", line.trim_end()))
            .collect();
        let screen = self.same(&screen);
        let _ = write!(self.seen, "({what})\n{screen}");
    }

    /// A text without what differs each time: where the test is, numbers of more than one digit, and how far columns are
    /// apart.
    fn same(&self, text: &str) -> String {
        let text = text.replace(self.home().to_str().unwrap(), "HOME");
        let mut same = String::new();
        for line in text.lines() {
            let mut words = Vec::new();
            for word in line.split_whitespace() {
                words.push(numbers(word));
            }
            let indent: String = line.chars().take_while(|&c| c == ' ').take(2).collect();
            let _ = writeln!(same, "{indent}{}", words.join(" "));
        }
        same
    }

    /// Makes the terminal another size.
    pub fn resize(&self, columns: usize, rows: usize) {
        let (columns, rows) = (columns.to_string(), rows.to_string());
        self.tmux(&["resize-window", "-x", &columns, "-y", &rows]);
    }

    /// Whether it is as a shell has it: not on another screen, with a cursor, and with lines that are broken where they
    /// are too long.
    pub fn is_plain(&self) -> bool {
        let format = "#{alternate_on} #{cursor_flag} #{wrap_flag}";
        self.tmux(&["display-message", "-p", format]).trim_end() == "0 1 1"
    }

    /// What was seen must be what is kept in this file.
    pub fn check(self, kept: &Path) {
        if let Some(directory) = std::env::var_os("USERTRACE_KEEP") {
            let name = kept.file_name().unwrap();
            fs::write(Path::new(&directory).join(name), &self.seen).unwrap();
        }
        let expected = fs::read_to_string(kept).unwrap_or_default();
        assert!(
            self.seen == expected,
            "not what is kept in {} (with USERTRACE_KEEP=DIR, this one is kept there):\n{}",
            kept.display(),
            difference(&expected, &self.seen)
        );
    }
}

/// Where programs are.
fn path(directory: &Path) -> String {
    let bin = directory.join("bin");
    format!(
        "{}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
        bin.display()
    )
}

/// A word with an N for each number, and for the unit behind it.
fn numbers(word: &str) -> String {
    let mut same = String::new();
    let mut rest = word;
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        same.push_str(rest[..at].trim_end_matches('~'));
        let number = &rest[at..];
        let end = number
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(number.len());
        let (digits, behind) = number.split_at(end);
        let dots = digits.len() - digits.trim_end_matches('.').len();
        let in_name = same.ends_with(|c: char| c.is_alphabetic() || c == '_');
        match digits.trim_end_matches('.') {
            // Part of a name, as `babeltrace2`.
            digit if in_name && digit.len() == 1 => same.push_str(digit),
            _ => same.push('N'),
        }
        same.push_str(&digits[digits.len() - dots..]);
        rest = behind;
    }
    same + rest
}

/// Lines that are kept or seen only.
fn difference(kept: &str, seen: &str) -> String {
    let (kept, seen): (Vec<_>, Vec<_>) = (kept.lines().collect(), seen.lines().collect());
    let same = kept.iter().zip(&seen).take_while(|(a, b)| a == b).count();
    let mut text = String::new();
    for line in kept.iter().skip(same).take(30) {
        let _ = writeln!(text, "- {line}");
    }
    for line in seen.iter().skip(same).take(60) {
        let _ = writeln!(text, "+ {line}");
    }
    format!("from line {} on\n{text}", same + 1)
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // This server's, and nobody else's; the signal that it gets when this thread ends comes in any case.
        let socket = self.directory.path().join("socket");
        let _ = Command::new("tmux")
            .arg("-S")
            .arg(socket)
            .arg("kill-server")
            .stderr(Stdio::null())
            .status();
        let begun = Instant::now();
        while self.server.try_wait().is_ok_and(|ended| ended.is_none()) {
            if begun.elapsed() > Duration::from_secs(5) {
                let _ = self.server.kill();
            }
            sleep(STEP);
        }
    }
}
