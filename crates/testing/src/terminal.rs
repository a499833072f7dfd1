//! A terminal in which somebody types, as a new user would: `tmux`, with a server of the test's
//! own, which ends with the test.
//!
//! What is to be seen is kept in files, with everything taken out that is not the same each time.
//! Where it differs, the test fails and says how; with `USERTRACE_KEEP=DIR` in the environment,
//! what is seen is written there, to be looked at, and kept.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Write as _};
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
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
    client: Client,
    /// What was typed, and what was to be seen.
    seen: String,
}

impl Terminal {
    /// One of this size, with these programs by these names, and nothing else but the system's, and
    /// these variables.
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
        end_with_this_thread(&mut server);
        let server = server.spawn().unwrap_or_else(|error| {
            panic!("tmux: {error} (Debian's package tmux; scripts/setup installs it)")
        });
        let tmux = |arguments: &[&str]| {
            let mut command = Command::new("tmux");
            command
                // What a client has is what its session gets.
                .env("PATH", path(directory.path()))
                .env("LC_ALL", "C.UTF-8")
                .arg("-S")
                .arg(directory.path().join("socket"))
                .args(arguments);
            command
        };
        let (columns, rows) = (columns.to_string(), rows.to_string());
        let run = |arguments: &[&str]| {
            let output = tmux(arguments).output().expect("tmux was there before");
            match output.status.success() {
                true => Ok(()),
                false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
            }
        };
        let begun = Instant::now();
        // Not by a command that would start a server.
        while let Err(error) = run(&["set-option", "-g", "status", "off"]) {
            assert!(begun.elapsed() < LIMIT, "tmux does not begin: {error}");
            sleep(STEP);
        }
        let home = home.to_str().unwrap();
        let options = ["set-option", "-g", "history-limit", "5000", ";"];
        let session = ["new-session", "-d", "-x", &columns, "-y", &rows, "-c", home];
        run(&[&options[..], &session, &["exec sh"]].concat())
            .unwrap_or_else(|error| panic!("tmux: {error}"));
        let client = Client::begin(tmux(&["-C", "attach-session", "-f", "ignore-size"]));
        let mut terminal = Self {
            directory,
            server,
            client,
            seen: String::new(),
        };
        terminal.until("there is a prompt", |screen| screen.trim_end() == "$");
        terminal
    }

    /// Where the shell is.
    pub fn home(&self) -> PathBuf {
        self.directory.path().join("home")
    }

    fn tmux(&mut self, arguments: &[&str]) -> String {
        let said = self.client.ask(arguments);
        said.unwrap_or_else(|error| panic!("tmux {arguments:?}: {error}"))
    }

    /// What is on the screen.
    pub fn screen(&mut self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// Waits for that, and gives the screen.
    pub fn until(&mut self, what: &str, is_so: impl Fn(&str) -> bool) -> String {
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
            self.client.wait_for_output();
        }
    }

    /// Presses keys, as `tmux` calls them.
    pub fn press(&mut self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    /// Types a line, without waiting for what comes of it.
    pub fn enter(&mut self, line: &str) {
        self.tmux(&["send-keys", "-l", line]);
        self.press(&["Enter"]);
    }

    /// All that was ever to be seen, but on screens that are gone, with lines that were too long in
    /// one piece.
    fn history(&mut self) -> String {
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
            self.client.wait_for_output();
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

    /// A text without what differs each time: where the test is, numbers of more than one digit,
    /// and how far columns are apart.
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
    pub fn resize(&mut self, columns: usize, rows: usize) {
        let (columns, rows) = (columns.to_string(), rows.to_string());
        self.tmux(&["resize-window", "-x", &columns, "-y", &rows]);
    }

    /// Whether it is as a shell has it: not on another screen, with a cursor, and with lines that
    /// are broken where they are too long.
    pub fn is_plain(&mut self) -> bool {
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

/// However a test ends, its programs end, too.
fn end_with_this_thread(command: &mut Command) {
    // SAFETY: a call with numbers, which may be made there.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
            Ok(())
        });
    }
}

/// A client of the server, to which commands are said line by line (tmux(1), CONTROL MODE).
struct Client {
    process: Child,
    input: ChildStdin,
    /// What it says, as a thread reads it.
    said: Receiver<Said>,
}

/// What a client says.
enum Said {
    /// What a command's result is, or why there is none.
    Result(Result<String, String>),
    /// Something was written to the terminal.
    Output,
}

impl Client {
    fn begin(mut command: Command) -> Self {
        end_with_this_thread(&mut command);
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("tmux was there before");
        let input = process.stdin.take().unwrap();
        let output = process.stdout.take().unwrap();
        let (to, said) = channel();
        std::thread::spawn(move || read(BufReader::new(output), &to));
        let mut client = Self {
            process,
            input,
            said,
        };
        client.result().expect("it attaches to the session");
        client
    }

    fn ask(&mut self, arguments: &[&str]) -> Result<String, String> {
        let words: Vec<_> = arguments.iter().map(|word| quoted(word)).collect();
        writeln!(self.input, "{}", words.join(" ")).map_err(|error| error.to_string())?;
        self.result()
    }

    fn result(&mut self) -> Result<String, String> {
        loop {
            match self.said.recv_timeout(LIMIT) {
                Ok(Said::Result(result)) => return result,
                Ok(Said::Output) => {}
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    /// Waits until something was written to the terminal, or might have been.
    fn wait_for_output(&mut self) {
        let _ = self.said.recv_timeout(Duration::from_secs(1));
        // What comes in pieces is looked at once.
        sleep(STEP);
        while self.said.try_recv().is_ok() {}
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Reads what a client says, to its end.
fn read(output: impl BufRead, to: &Sender<Said>) {
    let mut result: Option<String> = None;
    for line in output.split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line);
        let kind = line.split(' ').next().unwrap_or_default();
        let said = match (&mut result, kind) {
            (None, "%begin") => {
                result = Some(String::new());
                continue;
            }
            (Some(text), "%end") => Said::Result(Ok(std::mem::take(text))),
            (Some(text), "%error") => Said::Result(Err(std::mem::take(text))),
            (Some(text), _) => {
                text.push_str(&line);
                text.push('\n');
                continue;
            }
            (None, "%output") => Said::Output,
            (None, _) => continue,
        };
        if matches!(said, Said::Result(_)) {
            result = None;
        }
        if to.send(said).is_err() {
            return;
        }
    }
}

/// A word as tmux reads it from a line.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\"'\"'"))
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
        // This server's, and nobody else's; the signal that it gets when this thread ends comes in
        // any case.
        let _ = self.client.ask(&["kill-server"]);
        let begun = Instant::now();
        while self.server.try_wait().is_ok_and(|ended| ended.is_none()) {
            if begun.elapsed() > Duration::from_secs(5) {
                let _ = self.server.kill();
            }
            sleep(STEP);
        }
    }
}
