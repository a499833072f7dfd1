//! The page of a recording of another project's threaded program, in a browser (E8, F2).
//!
//! With `USERTRACE_WRITE_DOCS=1`, its screenshots replace those in `docs/`.

use std::fs::{self, File};
use std::path::Path;

use usertrace_reader::{Item, Reader, Selection};
use usertrace_report::html::Report;
use usertrace_report::stacks::SymbolOptions;
use usertrace_testing::browser::Browser;
use usertrace_tests::redis;
use usertrace_tests_preload::{Libraries, Traces};

/// Takes a screenshot, and asserts that it is not empty. On request, it goes to `docs/`.
fn screenshot(browser: &mut Browser, directory: &Path, name: &str) {
    let path = directory.join(name);
    browser.screenshot(&path);
    let bytes = fs::read(&path).unwrap();
    assert!(
        bytes.starts_with(b"\x89PNG") && bytes.len() > 30_000,
        "{}",
        bytes.len()
    );
    if std::env::var_os("USERTRACE_WRITE_DOCS").is_some() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        fs::copy(path, docs.join(name)).unwrap();
    }
}

/// The number of events in a trace, as counted by the reader.
fn count(traces: &Path) -> u64 {
    let mut reader = Reader::open(&[traces.to_owned()], Selection::default()).unwrap();
    let mut events = 0;
    while let Some(item) = reader.next() {
        match item {
            Item::Event(_) => events += 1,
            other => panic!("{other:?}"),
        }
    }
    events
}

/// Requirements: E8
#[test]
fn redis_server_is_shown() {
    let (traces, libraries) = (Traces::new(), Libraries::all());
    let _ = redis::serve(1500, |command| {
        traces
            .of(libraries.of(command))
            .env("USERTRACE_MODE", "block")
            .env("USERTRACE_CONTEXTS", "vtid,procname");
    });
    traces.wait();
    let directory = tempfile::tempdir().unwrap();
    let page = directory.path().join("page.html");
    let mut reader = Reader::open(&[traces.path().to_owned()], Selection::default()).unwrap();
    let report = Report::collect(&mut reader, Report::DETAIL, Some(SymbolOptions::default()));
    report
        .write("redis-server", &mut File::create(&page).unwrap())
        .unwrap();
    assert_eq!(report.events(), count(traces.path()));
    assert!(report.events() > 20_000 && report.lost() == 0 && report.problems().is_empty());

    let mut browser = Browser::start(1400, 900);
    browser.open(&page);
    browser.wait("document.documentElement.dataset.ready");
    let events = browser.value("Data.events");
    assert_eq!(events, report.events());
    // Each event is in one lane of a thread and in one of a CPU.
    for kind in ["=== 'thread'", "=== 'cpu'"] {
        let sum = browser.value(&format!(
            "Data.lanes.filter(lane => lane.kind {kind}).reduce((sum, lane) => sum + lane.events, 0)"
        ));
        assert_eq!(sum, events, "{kind}");
    }
    let lanes = browser.text("Data.lanes.map((_, lane) => laneName(lane)).join()");
    assert!(lanes.contains("redis-check-rdb "), "{lanes}");
    assert!(lanes.split(',').count() >= 8, "{lanes}");
    let is_some = |browser: &mut Browser, pair: &str| {
        browser.wait(&format!(
            "Data.pairs.some(pair => pair.name === '{pair}' && pair.count > 10 && pair.min <= pair.mean && pair.p99 <= pair.max)"
        ));
    };
    is_some(&mut browser, "pthread:mutex_lock_req → mutex_lock_acq");
    is_some(&mut browser, "pthread:mutex held");
    is_some(&mut browser, "libc:malloc → free");
    browser.wait("document.querySelectorAll('#classes tbody tr').length > 5");
    screenshot(&mut browser, directory.path(), "report.png");

    // Zoom to where most threads are active, until single events are shown; then select one.
    browser.value(
        "(() => { let most = [0, 0];
            for (let at = Data.end / 2; at < Data.end * 0.9; at += 3e5) {
                const lanes = Model.ofLane.filter((all, lane) => Model.isThread(lane)
                    && all.some(series => series.between((at - 2e5) / Model.bin, (at + 2e5) / Model.bin) >= 2));
                if (lanes.length > most[0]) most = [lanes.length, at];
            }
            View.show(most[1] - 3e5, most[1] + 3e5); })()",
    );
    browser.wait("Timeline.detail.state === 'all' && Timeline.detail.parts.length > 0");
    browser.press("n");
    browser.wait("document.querySelectorAll('#fields tr').length > 3");
    let fields = browser.text("document.getElementById('fields').innerText");
    // The table is drawn when everything else is idle.
    browser.wait("document.querySelector('#classes tbody td:last-child').textContent.length < 5");
    assert!(
        fields.contains("vtid") && fields.contains("procname"),
        "{fields}"
    );
    screenshot(&mut browser, directory.path(), "report-events.png");
    assert_eq!(browser.complaints, Vec::<String>::new());
}
