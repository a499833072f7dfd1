//! A terminal for tests that type commands as a user does: `tmux`, with a server that ends with the
//! test.
//!
//! The expected output is in files, without parts that vary. If it differs, the test fails and
//! shows the difference. With `USERTRACE_KEEP=DIR` in the environment, the test writes the actual
//! output there, to be checked and kept.

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

/// Time limit of each step. Only a failing test waits so long.
const LIMIT: Duration = Duration::from_secs(120);

const STEP: Duration = Duration::from_millis(20);

/// A shell in a terminal, in its own directory.
pub struct Terminal {
    /// Directory with the socket, the programs, and the shell's home.
    directory: tempfile::TempDir,
    server: Child,
    client: Client,
    /// The commands and their output so far.
    seen: String,
}

impl Terminal {
    /// Starts a terminal of this size. `programs` are added to those of the system, by name, and
    /// `variables` to the environment.
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
        // Interactive shells read this; root's prompt would differ.
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
                // A session inherits its client's environment.
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
        // Use a command that does not start a server.
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

    /// The shell's directory.
    pub fn home(&self) -> PathBuf {
        self.directory.path().join("home")
    }

    fn tmux(&mut self, arguments: &[&str]) -> String {
        let answer = self.client.ask(arguments);
        answer.unwrap_or_else(|error| panic!("tmux {arguments:?}: {error}"))
    }

    /// The contents of the screen.
    pub fn screen(&mut self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// Waits until `is_so` accepts the screen, and returns it.
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

    /// Types a line, without waiting for its output.
    pub fn enter(&mut self, line: &str) {
        self.tmux(&["send-keys", "-l", line]);
        self.press(&["Enter"]);
    }

    /// All output so far, except on alternate screens. Wrapped lines are joined.
    fn history(&mut self) -> String {
        self.tmux(&["capture-pane", "-p", "-J", "-S", "-"])
    }

    fn prompts(history: &str) -> usize {
        let lines = history.lines();
        lines
            .filter(|line| line.trim_end() == "$" || line.starts_with("$ "))
            .count()
    }

    /// Types a command, waits for its end, and returns its output.
    pub fn run(&mut self, command: &str) -> String {
        let before = Self::prompts(&self.history());
        self.enter(command);
        self.wait_for_end(before, command)
    }

    /// Waits for the end of a command. `before`: the number of prompts until it was typed.
    fn wait_for_end(&mut self, before: usize, command: &str) -> String {
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
        let output = from
            .rfind(&prompt)
            .map_or("", |at| &from[at + prompt.len()..]);
        let output = output
            .trim_end()
            .trim_end_matches('$')
            .trim_start_matches([' ', '\n']);
        let output: String = output
            .lines()
            .map(|line| format!("{}\n", line.trim_end()))
            .collect();
        let _ = write!(self.seen, "$ {command}\n{}", self.normalized(&output));
        output
    }

    /// Adds a screen to the log. Pass the one that [`Self::until`] returned: a later one may
    /// differ.
    pub fn keep_screen(&mut self, what: &str, screen: &str) {
        let screen: String = screen
            .trim_end()
            .lines()
            .map(|line| format!("| {}\n", line.trim_end()))
            .collect();
        let screen = self.normalized(&screen);
        let _ = write!(self.seen, "({what})\n{screen}");
    }

    /// Removes the varying parts of a text: the test's directory, numbers of more than one digit,
    /// and the width of columns.
    fn normalized(&self, text: &str) -> String {
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

    /// Resizes the terminal.
    pub fn resize(&mut self, columns: usize, rows: usize) {
        let (columns, rows) = (columns.to_string(), rows.to_string());
        self.tmux(&["resize-window", "-x", &columns, "-y", &rows]);
    }

    /// Whether the terminal is in the state of a shell: the normal screen, a cursor, and wrapped
    /// lines.
    pub fn is_plain(&mut self) -> bool {
        let format = "#{alternate_on} #{cursor_flag} #{wrap_flag}";
        self.tmux(&["display-message", "-p", format]).trim_end() == "0 1 1"
    }

    /// Asserts that the output so far equals the contents of this file.
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

/// Makes a command end when this thread does, however the test ends.
fn end_with_this_thread(command: &mut Command) {
    // SAFETY: between fork and exec, the child makes one system call, without pointers.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
            Ok(())
        });
    }
}

/// A client of the server in control mode: it takes commands line by line (tmux(1), CONTROL MODE).
struct Client {
    process: Child,
    input: ChildStdin,
    /// The client's messages, read by a thread.
    messages: Receiver<Message>,
}

/// A message of a client.
enum Message {
    /// A command's output, or its error.
    Result(Result<String, String>),
    /// A program wrote to the terminal.
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
        let (to, messages) = channel();
        std::thread::spawn(move || read(BufReader::new(output), &to));
        let mut client = Self {
            process,
            input,
            messages,
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
            match self.messages.recv_timeout(LIMIT) {
                Ok(Message::Result(result)) => return result,
                Ok(Message::Output) => {}
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    /// Waits until a program has written to the terminal, or for a second.
    fn wait_for_output(&mut self) {
        let _ = self.messages.recv_timeout(Duration::from_secs(1));
        // Output may come in pieces; wait for the rest.
        sleep(STEP);
        while self.messages.try_recv().is_ok() {}
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Reads a client's messages until its end.
fn read(output: impl BufRead, to: &Sender<Message>) {
    let mut result: Option<String> = None;
    for line in output.split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line);
        let kind = line.split(' ').next().unwrap_or_default();
        let message = match (&mut result, kind) {
            (None, "%begin") => {
                result = Some(String::new());
                continue;
            }
            (Some(text), "%end") => Message::Result(Ok(std::mem::take(text))),
            (Some(text), "%error") => Message::Result(Err(std::mem::take(text))),
            (Some(text), _) => {
                text.push_str(&line);
                text.push('\n');
                continue;
            }
            (None, "%output") => Message::Output,
            (None, _) => continue,
        };
        if matches!(message, Message::Result(_)) {
            result = None;
        }
        if to.send(message).is_err() {
            return;
        }
    }
}

/// Quotes a word for a line of tmux's.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\"'\"'"))
}

/// The value of `PATH`.
fn path(directory: &Path) -> String {
    let bin = directory.join("bin");
    format!(
        "{}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
        bin.display()
    )
}

/// Replaces each number in a word by N, with a unit prefix behind it, as in `120k`.
fn numbers(word: &str) -> String {
    let mut same = String::new();
    let mut rest = word;
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        same.push_str(rest[..at].trim_end_matches('~'));
        let number = &rest[at..];
        let end = number
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(number.len());
        let (digits, mut behind) = number.split_at(end);
        if matches!(behind, "k" | "M" | "G" | "T") {
            behind = "";
        }
        let dots = digits.len() - digits.trim_end_matches('.').len();
        let in_name = same.ends_with(|c: char| c.is_alphabetic() || c == '_');
        match digits.trim_end_matches('.') {
            // Part of a name such as `babeltrace2`.
            digit if in_name && digit.len() == 1 => same.push_str(digit),
            _ => same.push('N'),
        }
        same.push_str(&digits[digits.len() - dots..]);
        rest = behind;
    }
    same + rest
}

/// The lines that differ, from the first difference on.
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
        // Ends this server only. It also gets a signal when this thread ends.
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
