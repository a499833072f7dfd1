//! Tests of the command, and of the libraries that read traces, rings and dumps: all that need no
//! traced program.
//!
//! They are one program: linking the tools takes as long as running most of these tests.

mod calls;
mod chunks;
#[cfg(feature = "parquet")]
mod columns;
mod command;
mod conditions;
mod consumer;
mod counts;
mod crash;
mod ctf;
mod ctf2;
mod ctf_fields;
mod daemon;
mod export;
mod hosts;
mod modules;
mod reader;
mod report;
mod report_requests;
mod saved;
mod spans;
mod sqlx;
mod stacks;
mod symbols;
mod top;
mod triggers;
mod tutorial;
mod view;
