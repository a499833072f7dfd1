//! The example, as a whole: on the fallback, read by `babeltrace2`.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::process::Command;

use crate::{VARIABLE, babeltrace};

#[path = "../../examples/shop.rs"]
mod shop;

/// Says that this process is the example.
pub(crate) const PROGRAM: &str = "the example";

pub(crate) fn run() {
    shop::main().unwrap();
}

/// B1, D.
pub(crate) fn its_trace() {
    let directory = tempfile::tempdir().unwrap();
    // The daemons hold a lock of it until all is written.
    let running = File::create(directory.path().join(".running")).unwrap();
    let status = Command::new(std::env::current_exe().unwrap())
        .env(VARIABLE, PROGRAM)
        .env("USERTRACE_BACKEND", "fast")
        .env("USERTRACE_OUTPUT", directory.path())
        .status()
        .unwrap();
    assert!(status.success(), "{status}");
    // SAFETY: a descriptor of this process.
    let locked = unsafe { libc::flock(running.as_raw_fd(), libc::LOCK_EX) };
    assert_eq!(locked, 0);

    let read = babeltrace::read(directory.path());
    assert_eq!((read.discarded, read.discarded_packets), (0, 0));
    let target = "layer.example.shop";
    let mut orders = HashMap::new();
    let mut counts = HashMap::<String, usize>::new();
    for line in &read.lines {
        let (head, fields) = line.split_once(": {").unwrap();
        let name = head.rsplit(' ').next().unwrap();
        let span = value(fields, "span");
        if name == format!("{target}:serve.new") {
            assert_eq!(value(fields, "parent"), "0");
            orders.insert(span, value(fields, "order"));
        }
        let order = orders[span];
        if fields.contains("not found") {
            assert_eq!(value(fields, "order"), order, "{line}");
        } else if fields.contains("found") {
            assert_eq!(value(fields, "path"), format!("\"/orders/{order}\""));
        } else if name == "log:log_event" {
            let message = format!("\"looking for order {order}\"");
            assert_eq!(value(fields, "message"), message);
        }
        let name = name.split_once(".rs-").map_or(name, |(file, _)| file);
        *counts.entry(name.to_owned()).or_default() += 1;
    }
    let expected = [
        (format!("{target}:serve.new"), 6),
        (format!("{target}:serve.enter"), 6),
        (format!("{target}:serve.exit"), 6),
        (format!("{target}:serve.close"), 6),
        ("log:log_event".into(), 6),
        (format!("{target}:shop"), 6),
    ];
    assert_eq!(counts, HashMap::from(expected));
}

/// A field, as it is printed.
fn value<'a>(fields: &'a str, name: &str) -> &'a str {
    let (_, rest) = fields.split_once(&format!(" {name} = ")).unwrap();
    let end = rest.find([',', '}']).unwrap();
    rest[..end].trim_end()
}
