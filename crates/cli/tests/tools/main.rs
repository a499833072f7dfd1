//! What reads traces, rings and dumps, and the command: all that needs no traced program.
//!
//! One program for all of it: linking the tools once takes as long as running most of these tests.

#[path = "../../../../tests/src/browser.rs"]
#[allow(dead_code, unreachable_pub, reason = "other tests use more of it")]
mod browser;
mod chunks;
mod command;
mod consumer;
mod crash;
mod ctf;
mod ctf2;
mod ctf_fields;
mod daemon;
mod export;
#[path = "../support/fields.rs"]
#[allow(dead_code, unreachable_pub, reason = "other tests use more of it")]
mod fields;
#[path = "../support/printed.rs"]
#[allow(dead_code, unreachable_pub, reason = "other tests use more of it")]
mod printed;
#[path = "../support/processes.rs"]
#[allow(dead_code, unreachable_pub, reason = "other tests use more of it")]
mod processes;
mod reader;
mod report;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/tools.rs"]
#[allow(dead_code, unreachable_pub, reason = "other tests use more of it")]
mod tools;
mod top;
mod view;
