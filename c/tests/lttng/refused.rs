//! Events that cannot be written as declared: each is counted, or written as far as possible.

use std::process::Command;

use usertrace_testing::c_library::succeed;
use usertrace_tests::lttng::events;
use usertrace_tests_preload::Traces;

use crate::build::{COMPILERS, build};

pub(crate) const ALL: &[(&str, fn())] = &[("invalid_lttng_events_are_counted_or_cut", refused)];

/// Requirements: F7
fn refused() {
    let directory = tempfile::tempdir_in("/tmp").unwrap();
    let program = directory.path().join("program");
    build(COMPILERS[0].1, &["strange.c"], &program);
    let traces = Traces::new();
    let output = traces.of(&mut Command::new(program)).output().unwrap();
    // A type of 16 bytes, and an empty array.
    assert_eq!(succeed(&output), "2 bad events\n");
    traces.wait();
    let many: Vec<_> = (0..70).map(|n| format!("f{n} = {n}")).collect();
    let padding = "x".repeat(700);
    assert_eq!(
        events(traces.path()),
        [
            // Labels outside the range of the type.
            "(13) test_strange:narrow: { value = ( \"low\" : container = 5 ) }".to_owned(),
            "(13) test_strange:narrow: { value = ( \"high\" : container = 255 ) }".to_owned(),
            // Labels that are too long for the metadata.
            "(13) test_strange:labels: { value = 1, n = 7 }".to_owned(),
            format!("(13) test_strange:many: {{ {} }}", many.join(", ")),
            format!(
                "(13) test_strange:padded: {{ text = \"{padding}\", _rest_length = 5000, rest = \"r\", n = 1 }}"
            ),
        ]
    );
}
