//! Programs in C and programs that are instrumented for LTTng-UST, with the kernel's buffers (F7).

use usertrace_tests::{lttng, program, record};

use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    every_field_type_from_c,
    events_of_a_program_instrumented_for_lttng,
];

/// `c/tests/programs/events.rs` compares the program's output with the fallback to the letter.
///
/// Requirements: F7
fn every_field_type_from_c() {
    let program = program::path("c-program");
    let (output, read) = record::run(&[program.as_os_str(), "argument".as_ref()]);
    // Written, lost, stopped at the event that it was to; one trace, all described, one lost, none
    // bad; evaluated once.
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "1 2 1 1 0 1 0\n1 0\n",
        "{output:?}"
    );
    assert_eq!(read.discarded, 1);
    let of = |name: &str| {
        let events = read.events.iter().filter(|event| event.name == name);
        events
            .map(|event| event.fields.as_str())
            .collect::<Vec<_>>()
    };
    assert_eq!(read.events.len(), 15);
    assert_eq!(of("test:shared").len(), 3);
    for (name, fields) in [
        ("test:network", "{ a = 80, b = 0x1020304, c = -2 }"),
        (
            "test:texts",
            "{ a = \"abc\", _b_length = 3, b = \"def\", c = \"(null)\" }",
        ),
        (
            "test:enumeration",
            "{ a = ( \"Busy\" : container = 2 ), b = ( \"Low\" : container = -3 ) }",
        ),
        (
            "test:longest",
            "{ a = 1, b = 2, c = 3, d = 4, e = 5, f = 6, g = 7, h = 8 }",
        ),
        ("test:size", "{ text = \"argument\" }"),
    ] {
        let found = of(name);
        assert!(
            found.len() == 1 && found[0].ends_with(fields),
            "{name}: {found:?}"
        );
    }
}

/// The events equal those of LTTng-UST to the letter.
///
/// Requirements: F7
fn events_of_a_program_instrumented_for_lttng() {
    let program = program::path("lttng-program");
    let (output, trace) = record::run_into(&[&program]);
    // How many arguments were evaluated.
    assert_eq!(String::from_utf8_lossy(&output.stdout), "3\n", "{output:?}");
    let (events, expected) = (lttng::events(trace.path()), lttng::expected(false));
    for (event, expected) in events.iter().zip(&expected) {
        assert_eq!(event, expected);
    }
    assert_eq!(events.len(), expected.len());
}
