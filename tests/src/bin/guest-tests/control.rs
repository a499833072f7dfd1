//! B2 to B5: the tests of the control channel, with programs that the kernel traces.

mod backend;
#[path = "../../../../crates/cli/tests/control/buffers.rs"]
pub(crate) mod buffers;
#[path = "../../../../crates/cli/tests/control/probes.rs"]
pub(crate) mod probes;
#[path = "../../../../crates/cli/tests/control/program.rs"]
mod program;
#[path = "../../../../crates/cli/tests/control/reports.rs"]
pub(crate) mod reports;
