//! B2 to B5: the tests of the control channel, with programs that the kernel traces.

mod backend;
#[path = "../../../../usertrace/tests/control/buffers.rs"]
pub(crate) mod buffers;
#[path = "../../../../usertrace/tests/control/probes.rs"]
pub(crate) mod probes;
#[path = "../../../../usertrace/tests/control/program.rs"]
mod program;
#[path = "../../../../usertrace/tests/control/reports.rs"]
pub(crate) mod reports;
