//! `usertrace top`.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::ValueEnum;
use serde::Serialize;
use usertrace::consumer::ControlFsError;
use usertrace::reader::Patterns;
use usertrace::top::{Counter, Rates, Recordings, Row, STEP, Traces};

use crate::output;
use crate::root::Root;
use crate::terminal::{Came, Key, Terminal};

const WRONG_COMMAND_LINE: u8 = 2;

/// Show how often events come, by process and event, while they come
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  usertrace top                         # all traces, in the terminal, until q
  usertrace top mine -e 'shop:*'        # the events of one provider in one trace
  usertrace record -o traces -- ./server & sleep 1; usertrace top traces
  usertrace top -b -i 10 -n 6 mine      # six times, after ten seconds each, as lines
  usertrace top --json mine | jq -c '.rows[] | [.event, .rate]'

An argument is the name of a trace, or a directory that record, or a program without the patched kernel, is writing to:
what is there already counts, too, but makes no rate. (A directory that is called like a trace: ./NAME.) Without an
argument it is all traces. Nothing is taken away from who records a trace, and nobody waits. Without the patched kernel,
programs write when a sub-buffer is full, so rates jump.

EVENTS/S, BYTES/S and LOST/S are of the last interval; MEAN and TOTAL since top saw the process first. LOST/S, and FILL,
which is how full the fullest ring is of what was not recorded, are the process's, the same for all of its events. Where
events come faster than they can be counted, a part of them is: ~ is in front of what is estimated by that.

Keys: n, m, t, l, b, f, c, i, e sort by EVENTS/S, MEAN, TOTAL, LOST/S, BYTES/S, FILL, PROCESS, PID, EVENT; r in the other order;
g a line for each process; / shows those whose process, pid or event has a text; space pauses; arrows, page keys, home and end
scroll; h says this; q, Esc or Ctrl-C ends it.

Where standard output or input is no terminal, it is as with --batch.

Exit status: 0, also when what is watched ends or nobody reads on; 1 if it cannot be watched, 2 for a wrong command line.")]
pub(crate) struct Args {
    /// Traces, or directories of recordings [default: all traces]
    #[arg(value_name = "TRACE|DIR")]
    what: Vec<PathBuf>,

    /// Seconds of an interval
    #[arg(short, long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    interval: Duration,

    /// End after so many intervals
    #[arg(short = 'n', long, value_name = "N")]
    count: Option<u64>,

    /// Print lines at each interval
    #[arg(short, long)]
    batch: bool,

    /// Print a line of JSON at each interval
    #[arg(long)]
    json: bool,

    /// By what lines are sorted: rate, mean, total, lost, bytes, fill, process, pid, or event
    #[arg(
        short,
        long,
        value_name = "COLUMN",
        default_value = "rate",
        hide_possible_values = true
    )]
    sort: Sort,

    /// Only these events: NAME or PROVIDER:NAME, * for any characters, ? for any one, ! in front for those that are not
    /// wanted; several with commas between them, of which the last that matches counts [default: all]
    #[arg(short, long, value_name = "PATTERNS", value_delimiter = ',')]
    event: Vec<String>,

    /// Only those of these processes; several with commas between them
    #[arg(long, value_name = "PID", value_delimiter = ',')]
    pid: Vec<u32>,

    /// A line for each process, with all of its events
    #[arg(short = 'g', long)]
    processes: bool,

    #[command(flatten)]
    root: Root,

    /// Panic in the terminal: for tests
    #[arg(long, hide = true)]
    panic: bool,
}

/// What lines are sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Sort {
    Rate,
    Mean,
    Total,
    Lost,
    Bytes,
    Fill,
    Process,
    Pid,
    Event,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    // Less than a step takes, or more than anybody waits, is a mistake.
    if !(0.05..=86400.0).contains(&seconds) {
        return Err("from 0.05 to 86400 seconds".to_owned());
    }
    Ok(Duration::from_secs_f64(seconds))
}

impl Args {
    pub(crate) fn run(self) -> ExitCode {
        output::exit_code(self.try_run())
    }

    fn try_run(self) -> anyhow::Result<u8> {
        let events = match &self.event[..] {
            [] => None,
            patterns => match Patterns::new(patterns) {
                Ok(patterns) => Some(patterns),
                Err(bad) => {
                    output::say(bad);
                    return Ok(WRONG_COMMAND_LINE);
                }
            },
        };
        let counters = self.counters()?;
        let is_terminal = io::stdout().is_terminal() && io::stdin().is_terminal();
        let top = Top {
            counters,
            events,
            begun: Instant::now(),
            rates: Rates::new(Instant::now()),
            rows: Vec::new(),
            problems: Vec::new(),
            view: View {
                sort: self.sort,
                reverse: false,
                by_process: self.processes,
                filter: String::new(),
            },
            args: self,
        };
        if top.args.batch || top.args.json || !is_terminal {
            top.print()?;
        } else {
            Screen::new(top).run()?;
        }
        Ok(0)
    }

    fn counters(&self) -> anyhow::Result<Vec<Box<dyn Counter>>> {
        let (mut names, mut directories) = (Vec::new(), Vec::new());
        let control_fs = self.root.open();
        for what in &self.what {
            let name = what.to_str().filter(|name| !name.contains('/'));
            let is_trace = |name: &&str| control_fs.as_ref().is_ok_and(|fs| fs.trace(name).is_ok());
            match name.filter(is_trace) {
                Some(name) => names.push(name.to_owned()),
                None if what.is_dir() => directories.push(what.clone()),
                None => match &control_fs {
                    Ok(_) => bail!("there is no trace, and no directory, {}", what.display()),
                    Err(error) => bail!(
                        "there is no directory {}, and no trace, as {error}",
                        what.display()
                    ),
                },
            }
        }
        let mut counters: Vec<Box<dyn Counter>> = Vec::new();
        let all = self.what.is_empty();
        if all || !names.is_empty() {
            let control_fs = match control_fs {
                Err(error @ ControlFsError::Missing(_)) => {
                    let what =
                        "name the directory that a program is recorded to: usertrace top DIR";
                    return Err(anyhow::Error::from(error).context(what));
                }
                control_fs => control_fs?,
            };
            let names = (!all).then_some(names);
            counters.push(Box::new(Traces::new(control_fs, names)?));
        }
        if !directories.is_empty() {
            counters.push(Box::new(Recordings::new(&directories)?));
        }
        Ok(counters)
    }
}

/// What is shown.
#[derive(Clone, Debug)]
struct View {
    sort: Sort,
    reverse: bool,
    by_process: bool,
    /// A text that process, pid or event have.
    filter: String,
}

impl View {
    fn rows(&self, rows: &[Row]) -> Vec<Row> {
        let mut rows: Vec<_> = match self.by_process {
            true => by_process(rows),
            false => rows.to_vec(),
        };
        if !self.filter.is_empty() {
            rows.retain(|row| {
                let event = row.event.as_deref().unwrap_or_default();
                format!("{} {} {event}", row.process, row.pid).contains(&self.filter)
            });
        }
        rows.sort_by(|a, b| {
            let most = |of: fn(&Row) -> f64| of(b).total_cmp(&of(a));
            let order = match self.sort {
                Sort::Rate => most(|row| row.rate),
                Sort::Mean => most(|row| row.mean),
                Sort::Total => b.total.cmp(&a.total),
                Sort::Lost => most(|row| row.lost),
                Sort::Bytes => most(|row| row.bytes),
                Sort::Fill => most(|row| row.fill.unwrap_or(-1.0)),
                Sort::Process => a.process.cmp(&b.process),
                Sort::Pid => a.pid.cmp(&b.pid),
                Sort::Event => a.event.cmp(&b.event),
            };
            let order = if self.reverse { order.reverse() } else { order };
            let name = |row: &Row| (row.source.clone(), row.pid, row.event.clone());
            order.then_with(|| name(a).cmp(&name(b)))
        });
        rows
    }
}

/// A row for each process.
fn by_process(rows: &[Row]) -> Vec<Row> {
    let mut processes: BTreeMap<(&str, u32), (Row, usize)> = BTreeMap::new();
    for row in rows {
        let count = usize::from(row.event.is_some());
        match processes.get_mut(&(row.source.as_str(), row.pid)) {
            None => {
                let sum = (row.clone(), count);
                processes.insert((&row.source, row.pid), sum);
            }
            Some((sum, events)) => {
                *events += count;
                sum.rate += row.rate;
                sum.mean += row.mean;
                sum.total += row.total;
                sum.bytes += row.bytes;
                sum.rate_is_estimate |= row.rate_is_estimate;
                sum.total_is_estimate |= row.total_is_estimate;
            }
        }
    }
    let name = |(row, events): (Row, usize)| Row {
        event: Some(output::count(events, "event", "events")),
        ..row
    };
    processes.into_values().map(name).collect()
}

/// What is counted.
struct Top {
    args: Args,
    counters: Vec<Box<dyn Counter>>,
    events: Option<Patterns>,
    begun: Instant,
    rates: Rates,
    rows: Vec<Row>,
    /// What cannot be counted.
    problems: Vec<String>,
    view: View,
}

/// An interval, as JSON.
#[derive(Serialize)]
struct Interval<'a> {
    /// Since it began.
    seconds: f64,
    rows: &'a [Row],
    problems: &'a [String],
}

impl Top {
    /// Counts what is new, and says how long nothing needs to be done.
    fn step(&mut self) -> Duration {
        let begun = Instant::now();
        let until = begun + STEP;
        let waits = self.counters.iter_mut().map(|counter| counter.step(until));
        let wait = waits.min().unwrap_or(STEP);
        // Others are to have as much of the CPU as this.
        wait.max(begun.elapsed().min(2 * STEP))
    }

    /// An interval is over.
    fn update(&mut self) {
        let counters = self.counters.iter_mut();
        let counted: Vec<_> = counters.flat_map(|counter| counter.counted()).collect();
        let mut rows = self.rates.update(Instant::now(), &counted);
        if !self.args.pid.is_empty() {
            rows.retain(|row| self.args.pid.contains(&row.pid));
        }
        if let Some(patterns) = &self.events {
            rows.retain(|row| {
                row.event
                    .as_deref()
                    .is_some_and(|event| patterns.accept(event))
            });
        }
        self.rows = rows;
        for counter in &mut self.counters {
            self.problems.extend(counter.problems());
        }
    }

    fn has_ended(&self) -> bool {
        self.counters.iter().all(|counter| counter.has_ended())
    }

    /// Prints each interval, until there is nothing more to say, or nobody who reads it.
    fn print(mut self) -> anyhow::Result<()> {
        let mut next = self.begun + self.args.interval;
        let mut intervals = 0;
        loop {
            let wait = self.step();
            let now = Instant::now();
            // What ended between two intervals is told of at once.
            let ended = self.has_ended();
            if now < next && !ended {
                std::thread::sleep(wait.min(next - now));
                continue;
            }
            next = now.max(next + self.args.interval);
            self.update();
            match self.print_interval() {
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
                written => written.context("cannot write to standard output")?,
            }
            intervals += 1;
            if ended || self.args.count.is_some_and(|count| intervals >= count) {
                return Ok(());
            }
        }
    }

    fn print_interval(&mut self) -> io::Result<()> {
        let seconds = self.begun.elapsed().as_secs_f64();
        let rows = self.view.rows(&self.rows);
        let problems = std::mem::take(&mut self.problems);
        let mut text = String::new();
        if self.args.json {
            let interval = Interval {
                seconds,
                rows: &rows,
                problems: &problems,
            };
            text += &serde_json::to_string(&interval)?;
            text.push('\n');
        } else {
            for problem in &problems {
                output::say(problem);
            }
            text += &format!("{seconds:.1} s: {}\n", sums(&self.rows, whole).join(", "));
            text += &table(&rows);
            text.push('\n');
        }
        let mut output = io::stdout().lock();
        output.write_all(text.as_bytes())?;
        output.flush()
    }
}

/// All of them in one line.
fn sums(rows: &[Row], number: fn(f64) -> String) -> [String; 4] {
    let processes = by_process(rows);
    // (The sum of none is -0.)
    let sum = |of: fn(&Row) -> f64| number(processes.iter().map(of).fold(0.0, |a, b| a + b));
    let is_estimate = processes.iter().any(|row| row.rate_is_estimate);
    [
        output::count(processes.len(), "process", "processes"),
        about(is_estimate, sum(|row| row.rate)) + " events/s",
        sum(|row| row.lost) + " lost/s",
        about(is_estimate, sum(|row| row.bytes)) + " bytes/s",
    ]
}

/// As many parts of a line as there is room for.
fn fitting(parts: &[String], separator: &str, width: usize) -> String {
    let mut line = String::new();
    for part in parts {
        let longer = match line.is_empty() {
            true => part.clone(),
            false => format!("{line}{separator}{part}"),
        };
        if longer.chars().count() > width && !line.is_empty() {
            break;
        }
        line = longer;
    }
    line
}

fn whole(n: f64) -> String {
    format!("{n:.0}")
}

/// In six characters.
fn short(n: f64) -> String {
    if n < 10.0 && n.fract() != 0.0 {
        return format!("{n:.1}");
    }
    if n < 99_999.5 {
        return format!("{n:.0}");
    }
    let mut n = n / 1000.0;
    for unit in ["k", "M", "G"] {
        if n < 9999.5 {
            let digits = usize::from(n < 999.95);
            return format!("{n:.digits$}{unit}");
        }
        n /= 1000.0;
    }
    format!("{n:.0}T")
}

/// What a cell has in front if it is an estimate.
fn about(is_estimate: bool, text: String) -> String {
    if is_estimate {
        format!("~{text}")
    } else {
        text
    }
}

/// A process's name, and that it has ended.
fn process(row: &Row) -> String {
    let name = row.process.escape_debug();
    if row.ended {
        format!("{name}, ended")
    } else {
        name.to_string()
    }
}

/// The source of a row, where there is more than one trace.
fn is_several(rows: &[Row]) -> bool {
    let mut traces = rows.iter().map(|row| &row.source);
    // Of recordings, each process has one of its own.
    let first = traces.next();
    let is_path = |source: &String| Path::new(source).components().count() > 1;
    traces.any(|source| Some(source) != first && !is_path(source))
}

fn event(row: &Row) -> String {
    let event = row.event.as_deref().unwrap_or("-");
    event.to_owned()
}

fn fill(row: &Row) -> String {
    row.fill
        .map_or_else(|| "-".to_owned(), |fill| format!("{fill:.0}%"))
}

/// All rows, for files.
fn table(rows: &[Row]) -> String {
    let several = is_several(rows);
    let mut cells = vec![
        [
            "PID", "EVENTS/S", "MEAN", "TOTAL", "LOST/S", "BYTES/S", "FILL", "PROCESS", "EVENT",
        ]
        .map(str::to_owned),
    ];
    cells.extend(rows.iter().map(|row| {
        let process = match several {
            true => format!("{}:{}", row.source, process(row)),
            false => process(row),
        };
        [
            row.pid.to_string(),
            about(row.rate_is_estimate, whole(row.rate)),
            about(row.total_is_estimate, whole(row.mean)),
            about(row.total_is_estimate, row.total.to_string()),
            whole(row.lost),
            about(row.rate_is_estimate, whole(row.bytes)),
            fill(row),
            process,
            event(row),
        ]
    }));
    output::table(&cells)
}

/// A column of the terminal.
struct Column {
    title: &'static str,
    width: usize,
    is_text: bool,
    cell: fn(&Row) -> String,
}

const fn number(title: &'static str, width: usize, cell: fn(&Row) -> String) -> Column {
    Column {
        title,
        width,
        is_text: false,
        cell,
    }
}

const fn text(title: &'static str, width: usize, cell: fn(&Row) -> String) -> Column {
    Column {
        title,
        width,
        is_text: true,
        cell,
    }
}

/// Of them all, in this order, as many as there is room for.
const COLUMNS: [Column; 9] = [
    number("PID", 7, |row| row.pid.to_string()),
    number("EVENTS/S", 8, |row| {
        about(row.rate_is_estimate, short(row.rate))
    }),
    number("MEAN", 7, |row| {
        about(row.total_is_estimate, short(row.mean))
    }),
    number("TOTAL", 7, |row| {
        about(row.total_is_estimate, short(row.total as f64))
    }),
    number("LOST/S", 6, |row| short(row.lost)),
    number("BYTES/S", 7, |row| {
        about(row.rate_is_estimate, short(row.bytes))
    }),
    number("FILL", 4, fill),
    text("PROCESS", 9, process),
    text("EVENT", 12, event),
];

/// Which are left out first.
const LEFT_OUT: [&str; 7] = [
    "MEAN", "BYTES/S", "FILL", "TOTAL", "PROCESS", "LOST/S", "PID",
];

/// The columns that fit, with their widths.
fn columns(width: usize) -> Vec<(&'static Column, usize)> {
    let mut columns: Vec<_> = COLUMNS.iter().collect();
    let needed = |columns: &[&Column]| {
        let widths = columns.iter().map(|column| column.width + 1);
        widths.sum::<usize>() - 1
    };
    for title in LEFT_OUT {
        if needed(&columns) <= width {
            break;
        }
        columns.retain(|column| column.title != title);
    }
    // What is left is for names: a part for processes', the rest for events'.
    let left = width.saturating_sub(needed(&columns));
    let process = left.min(30) / 5;
    let has_process = columns.iter().any(|column| column.title == "PROCESS");
    let more = |title: &str| match title {
        "PROCESS" => process,
        "EVENT" if has_process => left - process,
        "EVENT" => left,
        _ => 0,
    };
    let with = |column: &'static Column| (column, column.width + more(column.title));
    columns.into_iter().map(with).collect()
}

/// A line of cells.
fn line(columns: &[(&Column, usize)], cell: impl Fn(&Column) -> String) -> String {
    let cells = columns.iter().map(|(column, width)| {
        let width = *width;
        let text = cut(&cell(column), width);
        match column.is_text {
            true => format!("{text:width$}"),
            false => format!("{text:>width$}"),
        }
    });
    let line = cells.collect::<Vec<_>>().join(" ");
    line.trim_end().to_owned()
}

/// A text in so many characters.
fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let begin: String = text.chars().take(width.saturating_sub(1)).collect();
    match width {
        0 => String::new(),
        _ => begin + "\u{2026}",
    }
}

/// What the keys do.
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

/// What the terminal shows.
struct Screen {
    top: Top,
    /// The first row that is shown.
    scroll: usize,
    paused: bool,
    help: bool,
    /// A filter that is being typed.
    typed: Option<String>,
    intervals: u64,
}

impl Screen {
    fn new(top: Top) -> Self {
        Self {
            top,
            scroll: 0,
            paused: false,
            help: false,
            typed: None,
            intervals: 0,
        }
    }

    fn run(mut self) -> anyhow::Result<()> {
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
                // What is counted meanwhile is of the interval in which it goes on.
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
                Came::Nothing => {}
                Came::Gone => return Ok(()),
                Came::Redraw => self.draw(terminal)?,
                Came::Key(Key::Control('z')) => {
                    terminal.stop()?;
                    self.draw(terminal)?;
                }
                Came::Key(key) => {
                    if !self.key(key, terminal.size().1) {
                        return Ok(());
                    }
                    self.draw(terminal)?;
                }
            }
        }
    }

    /// False: that was all.
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

    /// What there is to see, and which line has the titles.
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
            let several = is_several(&rows);
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
        // What cannot be counted is said as far as there is room; when it is over it is said once more.
        match self.top.problems.is_empty() {
            true => fitting(&parts, "; ", width),
            false => parts.join("; "),
        }
    }
}

/// Lines that are no rows: head, titles, foot.
const FRAME: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    fn row(pid: u32, event: &str, rate: f64) -> Row {
        Row {
            source: "t".into(),
            process: format!("p{pid}"),
            pid,
            event: Some(event.into()),
            rate,
            mean: 100.0 - rate,
            total: 10,
            bytes: 8.0 * rate,
            lost: f64::from(pid),
            lost_total: 0,
            fill: None,
            rate_is_estimate: false,
            total_is_estimate: false,
            ended: false,
        }
    }

    fn shown(view: &View) -> Vec<(u32, String)> {
        let rows = [row(1, "a:x", 5.0), row(2, "a:y", 7.0), row(1, "b:y", 1.0)];
        let rows = view.rows(&rows);
        rows.iter().map(|row| (row.pid, event(row))).collect()
    }

    #[test]
    fn rows_are_sorted_and_filtered_and_summed() {
        let mut view = View {
            sort: Sort::Rate,
            reverse: false,
            by_process: false,
            filter: String::new(),
        };
        let order = |view: &View| -> Vec<String> {
            shown(view).into_iter().map(|(_, event)| event).collect()
        };
        assert_eq!(order(&view), ["a:y", "a:x", "b:y"]);
        view.reverse = true;
        assert_eq!(order(&view), ["b:y", "a:x", "a:y"]);
        (view.sort, view.reverse) = (Sort::Mean, false);
        assert_eq!(order(&view), ["b:y", "a:x", "a:y"]);
        view.sort = Sort::Lost;
        assert_eq!(order(&view), ["a:y", "a:x", "b:y"]);
        view.sort = Sort::Event;
        assert_eq!(order(&view), ["a:x", "a:y", "b:y"]);
        view.filter = ":y".into();
        assert_eq!(order(&view), ["a:y", "b:y"]);
        view.filter = "p1 1".into();
        assert_eq!(order(&view), ["a:x", "b:y"]);
        (view.filter, view.by_process) = (String::new(), true);
        let expected = [(2, "1 event".to_owned()), (1, "2 events".to_owned())];
        assert_eq!(shown(&view), expected);
        let rows = [row(1, "a:x", 5.0), row(1, "b:y", 1.0)];
        assert_eq!(view.rows(&rows)[0].rate, 6.0);
    }

    #[test]
    fn numbers_fit_into_their_columns() {
        for (n, text) in [
            (0.0, "0"),
            (0.25, "0.2"),
            (9.96, "10.0"),
            (99_999.0, "99999"),
            (100_000.0, "100.0k"),
            (999_960.0, "1000k"),
            (12_345_678.0, "12.3M"),
            (9_999_600_000.0, "10.0G"),
            (1e15, "1000T"),
        ] {
            assert_eq!(short(n), text);
            assert!(text.len() <= 6);
        }
    }

    #[test]
    fn lines_are_no_longer_than_the_terminal_is_wide() {
        for width in 1..200 {
            let columns = columns(width);
            let row = row(4_194_304, "provider:with_a_long_name_of_an_event", 1e6);
            let text = line(&columns, |column| (column.cell)(&row));
            assert!(cut(&text, width).chars().count() <= width);
            if width >= 21 {
                assert!(text.chars().count() <= width, "{width}: {text}");
            }
            // What one looks for is there, however narrow it is.
            let titles: Vec<_> = columns.iter().map(|(column, _)| column.title).collect();
            assert!(titles.contains(&"EVENTS/S") && titles.contains(&"EVENT"));
        }
        assert_eq!(columns(200).len(), COLUMNS.len());
    }
}
