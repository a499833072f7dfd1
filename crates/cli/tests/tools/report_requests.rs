//! The page's requests: the slowest root spans, and one as a waterfall (B1, E8, F1).

use std::path::Path;

use usertrace_testing::browser::Browser;
use usertrace_testing::spans::SpanTrace;

use crate::report::{inner, no_complaints, open, row, span};

/// Requests of 1 to 120 ms. One has a query in which another thread runs, and what looks like HTML.
fn write(directory: &Path) {
    let mut trace = SpanTrace::create(directory, 7);
    for n in 1..121u64 {
        let (begin, length) = (200_000_000 * n, 1_000_000 * n);
        let at = |part: u64, thread| (begin + length * part / 10, thread);
        trace.request(at(0, 51), [1, 0], &format!("/{n}"));
        trace.enter(at(0, 51), true, 1);
        trace.exit(at(2, 51), true, 1);
        if n == 120 {
            trace.query(at(3, 51), [2, 1], "</script><b>items");
            trace.query(at(4, 51), [3, 2], "inner");
            trace.close(at(5, 51), false, 3);
            trace.enter(at(5, 52), false, 2);
            trace.message(at(6, 52), 2, "found");
            trace.exit(at(7, 52), false, 2);
            trace.close(at(8, 52), false, 2);
        }
        trace.status(at(9, 51), 1, 200 + (n % 2) as u16);
        trace.close(at(10, 51), true, 1);
    }
    trace.request((30_000_000_000, 51), [9, 77], "/orphan");
    trace.other((30_500_000_000, 51));
    trace.finish();
}

/// The lines of the waterfall: level, text, and whether it is selected.
fn lines(browser: &mut Browser) -> String {
    browser.text(
        "[...document.querySelectorAll('#waterfall [role=treeitem]')].map(line => \
         `${line.getAttribute('aria-level')} ${line.querySelector('.name').textContent} \
         ${line.querySelector('.time').textContent} ${line.getAttribute('aria-selected')}`).join('; ')",
    )
}

/// The page lists the slowest root spans, finds them by their fields, and shows one as a waterfall,
/// all by keyboard.
///
/// Requirements: B1, E8, F1
#[test]
fn page_has_requests_and_a_waterfall() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path());
    let mut browser = open(directory.path(), &["."]);
    assert_eq!(
        inner(&mut browser, "found"),
        "100 of the 100 slowest; 21 faster ones are not in the page: usertrace spans has them"
    );
    let first = row(&mut browser, "roots", "shop:request");
    assert_eq!(first[1..4], ["500 ms", "0 ns", "1"]);
    assert_eq!(
        first[5..],
        [
            "shop (7)",
            "path = \"/orphan\" [parent unknown] [open at the end]"
        ]
    );
    // By a field of a span below the root, and by its exact value.
    for (text, found) in [
        ("status=201", 49),
        ("status = 200", 50),
        ("TATUS", 99),
        ("table=inner", 1),
        ("table=inne", 0),
    ] {
        browser.value(&format!("Requests.find({text:?})"));
        let said = inner(&mut browser, "found");
        assert!(
            said.starts_with(&format!("{found} of the 100")),
            "{text}: {said}"
        );
    }
    browser.press("r");
    for key in "message=found".chars() {
        browser.press(&key.to_string());
    }
    browser.wait("document.querySelectorAll('#roots tbody tr').length === 1");
    browser.press("Enter");
    browser.wait("document.querySelectorAll('#waterfall [role=treeitem]').length === 3");
    let [folded, request, query, inner_query] = [
        "1 ▸ shop:request 120 ms",
        "1 ▾ shop:request 120 ms",
        "2 ▾ shop:query 60 ms",
        "3 shop:query 12 ms",
    ];
    assert_eq!(
        lines(&mut browser),
        format!("{request} true; {query} false; {inner_query} false")
    );
    browser.press("ArrowDown");
    assert_eq!(
        lines(&mut browser),
        format!("{request} false; {query} true; {inner_query} false")
    );
    let said = inner(&mut browser, "span");
    for part in [
        "</script><b>items",
        "worker-52 52",
        "shop:main.rs-12",
        "message = \"found\"",
        "60 ms: busy 24 ms, idle 36 ms",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    // Its bar is where it ran, the thread's is within it.
    let places = browser.text(
        "JSON.stringify([...document.querySelectorAll('#waterfall [role=treeitem]')[1].querySelectorAll('.bar > *')] \
         .map(part => [part.className, part.style.left, part.style.width]))",
    );
    assert_eq!(
        places,
        r#"[["open","30%","50%"],["stay","50%","20%"],["event","60%",""]]"#
    );
    let spoken =
        browser.text("document.querySelectorAll('#waterfall .bar')[1].getAttribute('aria-label')");
    assert_eq!(spoken, "busy 24 ms of 60 ms in worker-52 52");
    // Enter shows the span's time in the timeline.
    browser.press("Enter");
    let (begin, end) = span(&mut browser);
    assert!((end - begin - 66e6).abs() < 1e4, "{begin} {end}");
    // Fold, and unfold.
    browser.press("ArrowUp");
    browser.press("ArrowLeft");
    assert_eq!(lines(&mut browser), format!("{folded} true"));
    browser.press("ArrowRight");
    assert_eq!(lines(&mut browser).matches(';').count(), 2);
    browser.press("Escape");
    assert_eq!(browser.text("document.activeElement.id"), "find");
    browser.press("Escape");
    browser.wait("document.querySelectorAll('#roots tbody tr').length === 100");
    no_complaints(&browser);
}

/// A trace without spans has no such section.
#[test]
fn page_without_spans_has_no_requests() {
    let directory = tempfile::tempdir().unwrap();
    let mut trace = SpanTrace::create(directory.path(), 7);
    trace.other((1, 51));
    trace.finish();
    let mut browser = open(directory.path(), &["."]);
    assert_eq!(
        browser.text("document.getElementById('requests').hidden"),
        "true"
    );
    browser.press("r");
    no_complaints(&browser);
}
