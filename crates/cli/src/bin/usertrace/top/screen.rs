//! The screen of `usertrace top`, and its keys.

use std::io;
use std::time::Instant;

use anyhow::Context as _;
use clap::ValueEnum as _;

use super::counting::Top;
use super::table::{columns, cut, event, fitting, has_several_traces, line, short, sums};
use super::view::Sort;
use crate::output;
use crate::terminal::{Input, Key, Terminal};

/// Lines around the rows: head, titles, foot.
const FRAME: usize = 3;

/// Help on the keys.
const HELP: &[&str] = &[
    "n m t l b f   sort by EVENTS/S, MEAN, TOTAL, LOST/S, BYTES/S, FILL",
    "c i e         sort by PROCESS, PID, EVENT",
    "r             the other way round",
    "g             a line for each process, or for each event",
    "/             show those that have a text: process, pid or event",
    "space         pause, and go on",
    "arrows, page keys, home, end: scroll",
    "q Esc Ctrl-C  quit",
];

/// The screen of `usertrace top`.
pub(super) struct Screen {
    top: Top,
    /// Index of the first visible row.
    scroll: usize,
    paused: bool,
    help: bool,
    /// The filter that the user is typing.
    typed: Option<String>,
    intervals: u64,
}

impl Screen {
    pub(super) fn new(top: Top) -> Self {
        Self {
            top,
            scroll: 0,
            paused: false,
            help: false,
            typed: None,
            intervals: 0,
        }
    }

    pub(super) fn run(mut self) -> anyhow::Result<()> {
        let mut terminal = Terminal::new().context("cannot use the terminal")?;
        let done = self.watch(&mut terminal);
        drop(terminal);
        for problem in &self.top.problems {
            output::say(problem);
        }
        done.context("cannot use the terminal")
    }

    fn watch(&mut self, terminal: &mut Terminal) -> io::Result<()> {
        let mut next = Instant::now() + self.top.args.interval;
        self.draw(terminal)?;
        assert!(!self.top.args.panic, "as it was told to");
        loop {
            let wait = self.top.step();
            let now = Instant::now();
            if now >= next {
                next = now.max(next + self.top.args.interval);
                // Events counted during a pause belong to the interval that ends it.
                if !self.paused {
                    self.top.update();
                    self.intervals += 1;
                    self.draw(terminal)?;
                }
                if self
                    .top
                    .args
                    .count
                    .is_some_and(|count| self.intervals >= count)
                {
                    return Ok(());
                }
            }
            match terminal.wait(wait.min(next.saturating_duration_since(now)))? {
                Input::Timeout => {}
                Input::Closed => return Ok(()),
                Input::Redraw => self.draw(terminal)?,
                Input::Key(Key::Control('z')) => {
                    terminal.stop()?;
                    self.draw(terminal)?;
                }
                Input::Key(key) => {
                    if !self.key(key, terminal.size().1) {
                        return Ok(());
                    }
                    self.draw(terminal)?;
                }
            }
        }
    }

    /// Handles a key. False: the user quits.
    fn key(&mut self, key: Key, height: usize) -> bool {
        if key == Key::Control('c') {
            return false;
        }
        if let Some(text) = &mut self.typed {
            match key {
                Key::Char(c) => text.push(c),
                Key::Backspace => drop(text.pop()),
                Key::Enter => {
                    self.top.view.filter = std::mem::take(text);
                    (self.typed, self.scroll) = (None, 0);
                }
                Key::Escape => self.typed = None,
                _ => {}
            }
            return true;
        }
        if std::mem::take(&mut self.help) {
            return true;
        }
        let view = &mut self.top.view;
        let page = height.saturating_sub(FRAME).max(1);
        let mut sort = |by: Sort| (view.sort, view.reverse) = (by, false);
        match key {
            Key::Char('q') | Key::Escape => return false,
            Key::Char('n') => sort(Sort::Rate),
            Key::Char('m') => sort(Sort::Mean),
            Key::Char('t') => sort(Sort::Total),
            Key::Char('l') => sort(Sort::Lost),
            Key::Char('b') => sort(Sort::Bytes),
            Key::Char('f') => sort(Sort::Fill),
            Key::Char('c') => sort(Sort::Process),
            Key::Char('i') => sort(Sort::Pid),
            Key::Char('e') => sort(Sort::Event),
            Key::Char('r') => view.reverse = !view.reverse,
            Key::Char('g') => (view.by_process, self.scroll) = (!view.by_process, 0),
            Key::Char('/') => self.typed = Some(view.filter.clone()),
            Key::Char(' ') => self.paused = !self.paused,
            Key::Char('h' | '?') => self.help = true,
            Key::Up => self.scroll = self.scroll.saturating_sub(1),
            Key::Down => self.scroll += 1,
            Key::PageUp => self.scroll = self.scroll.saturating_sub(page),
            Key::PageDown => self.scroll += page,
            Key::Home => self.scroll = 0,
            Key::End => self.scroll = usize::MAX,
            _ => {}
        }
        true
    }

    fn draw(&mut self, terminal: &Terminal) -> io::Result<()> {
        let (width, height) = terminal.size();
        let (lines, title) = self.lines(width, height);
        terminal.show(&lines, title)
    }

    /// The screen's lines, and the index of the line with the titles.
    fn lines(&mut self, width: usize, height: usize) -> (Vec<String>, usize) {
        let mut lines = vec![self.head(width)];
        let room = height.saturating_sub(FRAME);
        if self.help {
            lines.push("keys".to_owned());
            let keys = HELP.iter().take(room);
            lines.extend(keys.map(|&line| line.to_owned()));
        } else {
            let rows = self.top.view.rows(&self.top.rows);
            let columns = columns(width);
            let several = has_several_traces(&rows);
            lines.push(line(&columns, |column| column.title.to_owned()));
            self.scroll = self.scroll.min(rows.len().saturating_sub(room.max(1)));
            let shown = rows.iter().skip(self.scroll).take(room);
            lines.extend(shown.map(|row| {
                line(&columns, |column| match (column.title, several) {
                    ("EVENT", true) => format!("{} {}", row.source, event(row)),
                    _ => (column.cell)(row),
                })
            }));
        }
        lines.resize(lines.len().max(height.saturating_sub(1)), String::new());
        lines.truncate(height.saturating_sub(1).max(1));
        if height > 1 {
            lines.push(self.foot(width));
        }
        let lines = lines.iter().map(|line| cut(line, width)).collect();
        (lines, 1)
    }

    fn head(&self, width: usize) -> String {
        let state = if self.paused {
            "paused: "
        } else if self.top.has_ended() {
            "ended: "
        } else {
            ""
        };
        let mut parts = sums(&self.top.rows, short);
        if self.intervals == 0 {
            return format!("{state}counting");
        }
        parts[0].insert_str(0, state);
        fitting(&parts, ", ", width)
    }

    fn foot(&self, width: usize) -> String {
        let view = &self.top.view;
        if let Some(typed) = &self.typed {
            return format!("show those that have: {typed}_");
        }
        let sort = view.sort.to_possible_value();
        let sort = sort.as_ref().map_or("", |value| value.get_name());
        let reverse = if view.reverse { ", reversed" } else { "" };
        let mut parts = vec![format!("sort: {sort}{reverse}")];
        if !view.filter.is_empty() {
            parts.push(format!("shows: {}", view.filter.escape_debug()));
        }
        match self.top.problems.last() {
            Some(problem) => parts.push(format!("! {problem}")),
            None => parts.extend(["q: quit", "h: help"].map(str::to_owned)),
        }
        // A problem may be cut at the screen's width; `run` prints all of them at the end.
        match self.top.problems.is_empty() {
            true => fitting(&parts, "; ", width),
            false => parts.join("; "),
        }
    }
}
