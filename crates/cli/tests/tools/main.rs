//! What reads traces, rings and dumps, and the command: all that needs no traced program.
//!
//! One program for all of it: linking the tools once takes as long as running most of these tests.

mod chunks;
mod command;
mod consumer;
mod crash;
mod ctf;
mod ctf2;
mod ctf_fields;
mod daemon;
mod export;
mod reader;
mod report;
mod top;
mod view;
