//! A headless browser that a test drives by the DevTools protocol.
//!
//! The protocol uses two pipes (`--remote-debugging-pipe`); each message is JSON with a NUL at its
//! end. So no other process can use a port, and the browser ends when its test does, since the pipe
//! is closed.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Time limit of each step.
const TIME_LIMIT: Duration = Duration::from_secs(120);

/// A page in a browser started for it.
#[derive(Debug)]
pub struct Browser {
    process: Child,
    to: File,
    from: File,
    unread: Vec<u8>,
    events: VecDeque<Value>,
    session: Value,
    last: u64,
    /// Errors on the console, uncaught exceptions, and network requests of the page.
    pub complaints: Vec<String>,
    _profile: tempfile::TempDir,
}

fn pipe() -> [OwnedFd; 2] {
    let mut fds = [0; 2];
    // SAFETY: `fds` has room for two descriptors.
    let made = unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) };
    assert_eq!(made, 0, "a pipe");
    // SAFETY: `pipe2` has just returned them, so nothing else owns them.
    fds.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}

impl Browser {
    /// Starts the browser, with a window of this size.
    ///
    /// # Panics
    /// If there is no browser.
    #[must_use]
    pub fn start(width: u32, height: u32) -> Self {
        let profile = tempfile::tempdir().expect("a directory");
        let ([its_in, to], [from, its_out]) = (pipe(), pipe());
        let mut command = Command::new("chromium");
        command
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-quic",
            ])
            .args(["--no-first-run", "--disable-background-networking"])
            .args(["--disable-component-update", "--disable-sync"])
            .arg("--remote-debugging-pipe")
            .arg(format!("--window-size={width},{height}"))
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .env("TZ", "UTC")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0);
        let fds = [its_in.as_raw_fd(), its_out.as_raw_fd()];
        // SAFETY: between fork and exec, the child makes system calls only, and allocates nothing.
        unsafe {
            command.pre_exec(move || {
                // First move both out of the way: one may be at the other's target.
                let high = fds.map(|fd| libc::fcntl(fd, libc::F_DUPFD, 10));
                for (fd, place) in high.into_iter().zip(3..) {
                    if fd < 0 || libc::dup2(fd, place) < 0 {
                        return Err(std::io::Error::last_os_error());
                    }
                    libc::close(fd);
                }
                Ok(())
            });
        }
        let process = command
            .spawn()
            .unwrap_or_else(|error| panic!("chromium, of the package chromium: {error}"));
        // SAFETY: the descriptor is this process's. Non-blocking reads allow a time limit.
        let set = unsafe { libc::fcntl(from.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
        assert_eq!(set, 0);
        let mut browser = Self {
            process,
            to: to.into(),
            from: from.into(),
            unread: Vec::new(),
            events: VecDeque::new(),
            session: Value::Null,
            last: 0,
            complaints: Vec::new(),
            _profile: profile,
        };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let target = json!({ "targetId": target["targetId"], "flatten": true });
        browser.session = browser.call("Target.attachToTarget", target)["sessionId"].take();
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        let size =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        browser.call("Emulation.setDeviceMetricsOverride", size);
        browser
    }

    /// Returns the next message.
    fn receive(&mut self, until: Instant) -> Value {
        loop {
            if let Some(end) = self.unread.iter().position(|&b| b == 0) {
                let message: Vec<u8> = self.unread.drain(..=end).collect();
                return serde_json::from_slice(&message[..end]).expect("JSON");
            }
            let mut bytes = [0; 65536];
            match self.from.read(&mut bytes) {
                Ok(0) => panic!("the browser has ended: {:?}", self.process.try_wait()),
                Ok(len) => self.unread.extend_from_slice(&bytes[..len]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    assert!(Instant::now() < until, "the browser does not answer");
                    std::thread::sleep(Duration::from_millis(2));
                }
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Calls a method of the protocol.
    ///
    /// # Panics
    /// If it fails, or takes too long.
    pub fn call(&mut self, method: &str, params: Value) -> Value {
        self.last += 1;
        let mut message = json!({ "id": self.last, "method": method, "params": params });
        if !self.session.is_null() {
            message["sessionId"] = self.session.clone();
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.to.write_all(&bytes).expect("the browser listens");
        let until = Instant::now() + TIME_LIMIT;
        loop {
            let mut message = self.receive(until);
            if message["id"] == self.last {
                assert!(message["error"].is_null(), "{method}: {}", message["error"]);
                return message["result"].take();
            }
            self.check_message(&message);
            self.events.push_back(message);
        }
    }

    /// Records a complaint that the message may contain.
    fn check_message(&mut self, message: &Value) {
        let params = &message["params"];
        let complaint = match message["method"].as_str() {
            Some("Runtime.exceptionThrown") => Some(params["exceptionDetails"].to_string()),
            Some("Runtime.consoleAPICalled") if params["type"] != "log" => {
                Some(params["args"].to_string())
            }
            Some("Log.entryAdded") => Some(params["entry"].to_string()),
            Some("Network.requestWillBeSent") => {
                let url = params["request"]["url"].as_str().unwrap_or_default();
                let is_page = url.starts_with("file:") && params["type"] == "Document";
                (!is_page && !url.starts_with("about:")).then(|| format!("asks for {url}"))
            }
            _ => None,
        };
        self.complaints.extend(complaint);
    }

    /// Opens a file, and waits until it is loaded.
    pub fn open(&mut self, path: &Path) {
        self.events.clear();
        let path = path.canonicalize().expect("a path");
        let opened = self.call(
            "Page.navigate",
            json!({ "url": format!("file://{}", path.display()) }),
        );
        assert!(opened["errorText"].is_null(), "{opened}");
        let until = Instant::now() + TIME_LIMIT;
        let is_loaded = |event: &Value| event["method"] == "Page.loadEventFired";
        while !self.events.iter().any(is_loaded) {
            let message = self.receive(until);
            self.check_message(&message);
            self.events.push_back(message);
        }
    }

    /// The value of an expression.
    ///
    /// # Panics
    /// If it throws.
    pub fn value(&mut self, expression: &str) -> Value {
        let params =
            json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let mut result = self.call("Runtime.evaluate", params);
        assert!(
            result["exceptionDetails"].is_null(),
            "{expression}: {result}"
        );
        result["result"]["value"].take()
    }

    /// The value of an expression, as text.
    pub fn text(&mut self, expression: &str) -> String {
        match self.value(expression) {
            Value::String(text) => text,
            other => other.to_string(),
        }
    }

    /// Waits until an expression is true.
    ///
    /// # Panics
    /// If that takes longer than the time limit.
    pub fn wait(&mut self, expression: &str) {
        let until = Instant::now() + TIME_LIMIT;
        while self.value(&format!("Boolean({expression})")) != Value::Bool(true) {
            assert!(
                Instant::now() < until,
                "never: {expression}; {:?}",
                self.complaints
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Presses a key.
    pub fn press(&mut self, key: &str) {
        let is_text = key.chars().count() == 1;
        for kind in ["keyDown", "keyUp"] {
            let mut params = json!({ "type": kind, "key": key });
            if is_text && kind == "keyDown" {
                params["text"] = key.into();
            }
            self.call("Input.dispatchKeyEvent", params);
        }
    }

    /// Moves the mouse and presses its button: `kinds` are events of the protocol.
    pub fn mouse(&mut self, kinds: &[&str], x: f64, y: f64) {
        for kind in kinds {
            let is_pressed = *kind != "mouseMoved";
            let button = if is_pressed { "left" } else { "none" };
            let params = json!({ "type": kind, "x": x, "y": y, "button": button, "clickCount": u32::from(is_pressed) });
            self.call("Input.dispatchMouseEvent", params);
        }
    }

    /// Turns the wheel.
    pub fn wheel(&mut self, x: f64, y: f64, by: f64) {
        let params = json!({ "type": "mouseWheel", "x": x, "y": y, "deltaX": 0, "deltaY": by });
        self.call("Input.dispatchMouseEvent", params);
    }

    /// Writes the visible page to a file, as PNG.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn screenshot(&mut self, path: &Path) {
        let image = self.call("Page.captureScreenshot", json!({ "format": "png" }));
        let bytes = decode(image["data"].as_str().expect("base64"));
        fs::write(path, bytes).expect("a file");
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The browser's processes are in its process group. Killing an ended group does no harm.
        // SAFETY: `kill` takes no pointers. The group belongs to a child that was not waited for.
        unsafe { libc::kill(-self.process.id().cast_signed(), libc::SIGKILL) };
        let _ = self.process.wait();
    }
}

fn decode(text: &str) -> Vec<u8> {
    let (mut bytes, mut bits, mut count) = (Vec::new(), 0u32, 0);
    for c in text.bytes() {
        let value = match c {
            b'A'..=b'Z' => c - b'A',
            b'a'..=b'z' => c - b'a' + 26,
            b'0'..=b'9' => c - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => break,
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    bytes
}
