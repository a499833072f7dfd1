//! The report that a person reads, and the figures that others quote.

use std::fmt::Write;

use crate::targets::{PAYLOAD, PER_CPU, SHARED};
use crate::{Counts, Event, EventWriter, Load, Memory, PROCESSES, Results};

/// `docs/bench/results.md`.
#[must_use]
pub fn report(results: &Results) -> String {
    let mut text = String::from(
        "<!-- Made by scripts/bench of results.json. Do not change it by hand. -->\n\
         # What an event costs\n\n\
         ![Nanoseconds of an event](results.svg)\n\n",
    );
    let machine = &results.machine;
    let virtualised = match &machine.virtualised {
        Some(vendor) => format!("a virtual machine ({vendor})"),
        None => "not virtualised".into(),
    };
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "Measured on {}: {}, {} processors, {virtualised}; {}; {}; {}; {}.\n\n\
         The **[floor](../glossary.md#floor)** is the time stamp and the same stores into a ring of the same size: nothing that time-stamps each \
         event can do with less. (Below 1 is what tells the cache of the lines that come, which the floor does not.) Ratios are medians of the ratios of neighbours in time, of batches in turns, in one run; \
         `docs/bench.md` says how.\n",
        results.date,
        machine.processor,
        machine.processors,
        machine.kernel,
        machine.libc,
        machine.rustc,
        machine.lttng.as_deref().unwrap_or("without LTTng-UST"),
    );
    noise(&mut text, results);
    targets(&mut text, results);
    events(&mut text, results);
    idle(&mut text, results);
    first(&mut text, results);
    counts(&mut text, results);
    to_disk(&mut text, results);
    wrapped(&mut text, results);
    redis(&mut text, results);
    readers(&mut text, results);
    start_up(&mut text, results);
    text
}

/// How far two measurements of the same code differ. No smaller difference means anything.
fn noise(text: &mut String, results: &Results) {
    if results.events.noise.is_empty() {
        return;
    }
    text.push_str(
        "## Noise of the machine\n\n\
         The floor beside the same floor, in turns, before all other measurements:\n\n\
         | threads | the second in the first's time (quartiles) \
         | slowest tenth of batches in the fastest's time |\n|---|---|---|\n",
    );
    for noise in &results.events.noise {
        let _ = writeln!(
            text,
            "| {} | {:.2} ({:.2}–{:.2}) | {:.2} |",
            noise.threads,
            noise.same,
            noise.same_quartiles[0],
            noise.same_quartiles[1],
            noise.spread
        );
    }
    text.push_str("\nDifferences between rows below that are smaller mean nothing.\n\n");
}

fn targets(text: &mut String, results: &Results) {
    text.push_str("## Targets\n\n| what | target | measured | |\n|---|---|---|---|\n");
    for target in results.targets() {
        let verdict = if target.met { "met" } else { "**missed**" };
        let _ = writeln!(
            text,
            "| {} | {} | {} | {verdict} |",
            target.what, target.limit, target.measured
        );
    }
    text.push('\n');
}

fn writer_name(event: &Event) -> String {
    match event.who {
        EventWriter::Floor => "floor".into(),
        EventWriter::Usertrace => format!("usertrace, {}", event.how),
        EventWriter::Lttng => format!("LTTng-UST, {}", event.how),
        EventWriter::Tracing => format!("`tracing`, {}", event.how),
        EventWriter::Branch => "load, test, branch".into(),
    }
}

fn events(text: &mut String, results: &Results) {
    text.push_str(
        "## Events\n\n\
         | payload | threads | who | ns (quartiles) | in floors | in ours |\n|---|---|---|---|---|---|\n",
    );
    for event in &results.events.events {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {:.1} ({:.1}–{:.1}) | {:.2} | {:.2} |",
            event.payload,
            event.threads,
            writer_name(event),
            event.ns,
            event.quartiles[0],
            event.quartiles[1],
            event.floors,
            event.ours,
        );
    }
    text.push_str(
        "\nWith two threads, each is on a processor of its own, and what is told is what one event of one thread costs.\n\n",
    );
}

fn idle(text: &mut String, results: &Results) {
    let Some(idle) = &results.events.idle else {
        return;
    };
    text.push_str("## Events that no trace wants\n\n| what | ns |\n|---|---|\n");
    let rows = [
        (
            "a loop with one load, test and branch",
            Some(idle.branch_ns),
        ),
        (
            "a second loop, the same but for its place",
            Some(idle.same_ns),
        ),
        ("usertrace, no trace", Some(idle.disabled_ns)),
        ("usertrace, filtered out", Some(idle.filtered_ns)),
        ("usertrace, rejected by a condition", idle.rejected_ns),
        (
            "usertrace, rejected by a condition of two comparisons, one of texts",
            idle.rejected_text_ns,
        ),
        ("`tracing`, a registry without a layer", idle.tracing_ns),
        ("`tracing`, our layer, no trace", idle.tracing_layer_ns),
        ("LTTng-UST, no session", idle.lttng_disabled_ns),
        ("LTTng-UST, rejected by a filter", idle.lttng_filtered_ns),
    ];
    for (what, ns) in rows {
        if let Some(ns) = ns {
            let _ = writeln!(text, "| {what} | {ns:.2} |");
        }
    }
    let _ = writeln!(
        text,
        "\nIn turns of the first loop: the second {:.2} (quartiles {:.2}–{:.2}), disabled {:.2}, filtered out {:.2}.\n",
        idle.same, idle.same_quartiles[0], idle.same_quartiles[1], idle.disabled, idle.filtered
    );
}

fn first(text: &mut String, results: &Results) {
    if let Some(first) = &results.events.first {
        let _ = writeln!(
            text,
            "## Fresh buffers\n\n\
             An event of 32 bytes costs {:.1} ns in the first lap through the buffers of a new process (fallback, per-CPU \
             rings), and {:.1} ns in later ones: {:.2} times as much.\n",
            first.ns, first.later_ns, first.ratio
        );
    }
    if let Some(first) = &results.events.first_prefault {
        let _ = writeln!(
            text,
            "With `USERTRACE_PREFAULT=all`, {:.1} ns and {:.1} ns: {:.2} times as much.\n",
            first.ns, first.later_ns, first.ratio
        );
    }
}

fn counts(text: &mut String, results: &Results) {
    let Some(counts) = &results.instructions else {
        return;
    };
    text.push_str(
        "## Instructions\n\n\
         Of one event of 32 bytes, in the program and in the kernel, counted in the guest (`scripts/guest --icount`):\n\n| what | instructions | in ours |\n|---|---|---|\n",
    );
    let mut rows = vec![
        ("floor", counts.floor),
        ("usertrace, kernel buffers", counts.ours),
        (
            "the same, first lap: the kernel gets each page",
            counts.ours_fresh,
        ),
    ];
    rows.extend((counts.with_vtid).map(|count| ("the same with the context `vtid`", count)));
    rows.extend([
        ("`user_events`, one `write()`", counts.user_events),
        (
            "uprobe, a breakpoint on an instruction that the kernel emulates",
            counts.uprobe,
        ),
        (
            "uprobe, a breakpoint on one that it steps over",
            counts.uprobe_stepped,
        ),
    ]);
    for (what, count) in rows {
        let _ = writeln!(text, "| {what} | {count:.0} | {:.1} |", count / counts.ours);
    }
    text.push_str(
        "\nThere are no times of `user_events` and uprobes: QEMU emulates the guest's processor, so a time in it is one of \
         the emulator. A count leaves out what a trap or a system call costs a processor besides its instructions.\n\n",
    );
    kernel(text, counts);
}

/// The section on the kernel's work besides events.
fn kernel(text: &mut String, counts: &Counts) {
    if let Some(faults) = &counts.faults {
        text.push_str(
            "The first write to a page, with the clearing of it, in the same run:\n\n\
             | what | instructions for each page | against a memfd |\n|---|---|---|\n",
        );
        for (what, ours, memfd) in [
            ("one page at a time", faults.alone, faults.memfd),
            ("in order", faults.in_order, faults.memfd_in_order),
        ] {
            let _ = writeln!(text, "| memfd, {what} | {memfd:.0} | 1.00 |");
            let _ = writeln!(text, "| ring, {what} | {ours:.0} | {:.2} |", ours / memfd);
        }
        text.push('\n');
    }
    if let Some(calls) = &counts.idle_calls {
        text.push_str("System calls with nothing to do:\n\n| call | instructions | in `getppid` |\n|---|---|---|\n");
        for (call, count) in [
            ("getppid", calls.getppid),
            ("ltt_update", calls.update),
            ("ltt_switch", calls.switch),
        ] {
            let _ = writeln!(
                text,
                "| `{call}` | {count:.0} | {:.2} |",
                count / calls.getppid
            );
        }
        text.push('\n');
    }
    if let Some(starts) = &counts.starts {
        let half = PROCESSES / 2;
        let _ = writeln!(
            text,
            "The `write()` that starts a trace, while processes sleep that asked for buffers:\n\n\
             | processes | without a signal | with a signal |\n|---|---|---|\n\
             | 1 | {:.0} | {:.0} |\n| {half} | | {:.0} |\n| {PROCESSES} | {:.0} | {:.0} |\n\n\
             So each process that wants a signal costs {:.0} instructions, which wake it; what it does then is its own.\n",
            starts.one,
            starts.one_by_signal,
            starts.half_by_signal,
            starts.many,
            starts.many_by_signal,
            starts.by_process()[2],
        );
    }
    if let Some(volume) = &counts.volume {
        text.push_str(
            "What was traced, into a file in memory, for each MiB; of the reading side alone:\n\n\
             | way | instructions | in `cat`'s |\n|---|---|---|\n",
        );
        for (way, count) in [
            ("`cat` of a pipe", volume.pipe),
            ("ftrace's mapped reader, page by page", volume.ftrace),
            (
                "our recorder: looks at each record (32 bytes of payload), writes it as CTF",
                volume.ours,
            ),
            (
                "our rings by `write()` from where they are mapped, without a look",
                volume.copied,
            ),
            ("pages by `vmsplice` and `splice`", volume.spliced),
        ] {
            let _ = writeln!(text, "| {way} | {count:.0} | {:.2} |", count / volume.pipe);
        }
        text.push_str(
            "\nThe recorder uses no `splice`: a file takes a copy of what is in the pipe, so that a `write()` is cheaper. And \
             what it writes must be what it has looked at, not what the program makes of it meanwhile.\n\n",
        );
    }
}

fn to_disk(text: &mut String, results: &Results) {
    let Some(disk) = &results.to_disk else {
        return;
    };
    let _ = writeln!(
        text,
        "## Events into files, none lost\n\n\
         Events of 32 bytes by one thread that waits for room, in rings of 16 sub-buffers of 1 MiB; native, with the fallback, in \
         turns with LTTng-UST. The time ends when the last event is in a file.\n\n\
         | who | million events per second | consumer, ns of a processor for each event | bytes of files for each |\n\
         |---|---|---|---|"
    );
    for (who, of) in [("usertrace", disk.usertrace), ("LTTng-UST", disk.lttng)] {
        let _ = writeln!(
            text,
            "| {who} | {:.2} | {:.1} | {:.1} |",
            of.events_per_second / 1e6,
            of.consumer_ns,
            of.bytes
        );
    }
    let _ = writeln!(
        text,
        "\nUsertrace in LTTng-UST's, median of the turns: {:.2} times the events per second, {:.2} times the consumer's time.",
        disk.faster, disk.consumer
    );
    if let Some([ours, theirs]) = disk.small_bytes {
        let _ = writeln!(
            text,
            "An event of 4 bytes takes {ours:.1} bytes of files, and {theirs:.1} of LTTng-UST's."
        );
    }
    text.push('\n');
}

/// Calls that libraries wrap.
fn wrapped(text: &mut String, results: &Results) {
    let Some(rows) = &results.wrapped else {
        return;
    };
    text.push_str(
        "## Calls that libraries wrap\n\n\
         One thread, which nobody disturbs; rings that overwrite, so that no reader runs beside it. heaptrack walks a \
         stack for each `malloc`, and ours with `callstack` for each event that gets something, so none for `free`.\n\n\
         | calls | how | ns of a pair | more than plain |\n|---|---|---|---|\n",
    );
    for row in rows {
        let _ = writeln!(
            text,
            "| `{}` | {} | {:.1} | {:.1} |",
            row.calls, row.how, row.ns, row.more_ns
        );
    }
    text.push('\n');
}

/// The server whose calls are wrapped.
fn redis(text: &mut String, results: &Results) {
    let Some(redis) = &results.redis else {
        return;
    };
    text.push_str(
        "## A server whose calls are wrapped\n\n\
         `redis-server` under `redis-benchmark -t set,get`, in turns; events go into files, and consumers run on the same \
         processors. The processor time is the server's own. The second plain server shows what the differences are worth.\n\n",
    );
    load(text, "Clients that wait for each answer:", &redis.waiting);
    if let Some(pipelined) = &redis.pipelined {
        load(text, "Clients that send 16 requests at a time:", pipelined);
    }
}

/// A server under one load.
fn load(text: &mut String, what: &str, load: &Load) {
    let _ = writeln!(
        text,
        "{what}\n\n\
         | how | requests per second | lost | ns of a processor for each | more than plain | events lost for each |\n\
         |---|---|---|---|---|---|"
    );
    let mut rows = vec![("plain", load.plain)];
    rows.extend(load.again.map(|again| ("plain, once more", again)));
    rows.push(("`usertrace record --malloc --pthread`", load.usertrace));
    rows.extend(load.flight.map(|flight| {
        (
            "the same with `--flight`, which reads nothing meanwhile",
            flight,
        )
    }));
    rows.push((
        "LTTng-UST's wrappers of the C library and of pthread",
        load.lttng,
    ));
    for (how, of) in rows {
        let _ = writeln!(
            text,
            "| {how} | {:.0} | {:.1} % | {:.0} | {:.0} | {:.2} |",
            of.rate,
            100.0 * of.loss,
            of.ns,
            of.more_ns,
            of.lost_events
        );
    }
    text.push('\n');
}

/// Programs that read traces.
fn readers(text: &mut String, results: &Results) {
    let Some(readers) = &results.readers else {
        return;
    };
    let _ = writeln!(
        text,
        "## Programs that read a trace\n\n\
         All of a trace of {} events of 32 bytes, to /dev/null, in turns.\n\n\
         | command | seconds | of a processor | most memory, MiB | million events a second |\n|---|---|---|---|---|",
        readers.events
    );
    for row in &readers.rows {
        let _ = writeln!(
            text,
            "| `{}` | {:.2} | {:.2} | {:.0} | {:.2} |",
            row.command,
            row.seconds,
            row.processor,
            row.peak_mib,
            readers.events as f64 / row.seconds / 1e6
        );
    }
    text.push('\n');
}

fn start_up(text: &mut String, results: &Results) {
    let Some(start) = &results.start_up else {
        return;
    };
    let _ = writeln!(
        text,
        "## An instrumented program that does nothing\n\n\
         With the fallback, against the same program without the library. `main` begins {:.2} ms after the spawn, not \
         {:.2} ms: {:.2} ms later. Memory, in KiB:\n\n| | without | with | more |\n|---|---|---|---|",
        start.instrumented_ms, start.plain_ms, start.later_ms
    );
    type Part = fn(&Memory) -> f64;
    let rows: [(&str, Part); 5] = [
        ("its own: of no file", Memory::own),
        ("pages of files, program and libraries", |memory| {
            memory.file
        }),
        ("all that is resident (RSS)", |memory| memory.rss),
        ("the same, what is shared in proportion (PSS)", |memory| {
            memory.pss
        }),
        ("anonymous", |memory| memory.anonymous),
    ];
    for (what, of) in rows {
        let (plain, instrumented) = (of(&start.plain), of(&start.instrumented));
        let _ = writeln!(
            text,
            "| {what} | {plain:.0} | {instrumented:.0} | {:.0} |",
            instrumented - plain
        );
    }
}

/// The figures that README quotes, as it quotes them.
#[must_use]
pub fn figures(results: &Results) -> String {
    let mut text = String::new();
    let row = |how, threads| results.row(EventWriter::Usertrace, how, PAYLOAD, threads);
    if let (Some(ours), Some(floor)) = (
        row(PER_CPU, 1),
        results.row(EventWriter::Floor, "", PAYLOAD, 1),
    ) {
        let _ = writeln!(
            text,
            "- An event with 32 bytes: {:.1} ns, {:.2} times the floor (the time stamp and the same stores: {:.1} ns).",
            ours.ns, ours.floors, floor.ns
        );
    }
    let others = results.lttng(PAYLOAD, 1);
    let least = others.iter().map(|row| row.ours).min_by(f64::total_cmp);
    let most = others.iter().map(|row| row.ours).max_by(f64::total_cmp);
    if let (Some(least), Some(most)) = (least, most) {
        let _ = writeln!(
            text,
            "- LTTng-UST, in the same run: {least:.1} to {most:.1} times as much, by its configuration."
        );
    }
    if let Some(idle) = &results.events.idle {
        let _ = writeln!(
            text,
            "- An event that no trace wants: {:.2} ns; a loop with one load, test and branch: {:.2} ns.",
            idle.disabled_ns, idle.branch_ns
        );
    }
    if let Some(shared) = row(SHARED, 1) {
        let _ = writeln!(
            text,
            "- Into a ring of the thread's own, where there are no restartable sequences: {:.2} times the floor.",
            shared.floors
        );
    }
    if let Some(counts) = &results.instructions {
        let _ = writeln!(
            text,
            "- Instructions, the kernel's included: {:.0}; a `user_events` write takes {:.1} times as many, a uprobe {:.1} \
             times.",
            counts.ours,
            counts.user_events / counts.ours,
            counts.uprobe / counts.ours
        );
    }
    if let Some(start) = &results.start_up {
        let _ = writeln!(
            text,
            "- An instrumented program that does nothing starts {:.2} ms later, and has {:.0} KiB more of its own.",
            start.later_ms,
            start.instrumented.own() - start.plain.own()
        );
    }
    text
}

/// Marks around the figures in README.
const MARKS: [&str; 2] = ["<!-- bench -->\n", "<!-- /bench -->"];

/// A text with these figures between its marks; nothing if it has no marks.
#[must_use]
pub fn with_figures(text: &str, figures: &str) -> Option<String> {
    let (before, rest) = text.split_once(MARKS[0])?;
    let (_, after) = rest.split_once(MARKS[1])?;
    Some([before, MARKS[0], figures, MARKS[1], after].concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::tests::some;
    use crate::targets::{FORMATTED, FROM_C, LAYER, PAYLOAD, TRACING_PAYLOAD};
    use crate::{Faults, IdleCalls, Starts, Volume};

    #[test]
    fn each_target_has_a_verdict() {
        let mut results = some();
        let text = report(&results);
        assert!(text.contains("| at most 1.15 × | 1.10 × | met |"), "{text}");
        assert!(text.contains("| at least 6 × | 9.0 × | met |"), "{text}");
        for event in &mut results.events.events {
            event.floors *= 1.1;
            event.ours /= 2.0;
        }
        let text = report(&results);
        assert!(
            text.contains("| at most 1.15 × | 1.21 × | **missed** |"),
            "{text}"
        );
        assert!(
            text.contains("| at least 6 × | 4.5 × | **missed** |"),
            "{text}"
        );
    }

    #[test]
    fn c_has_a_target() {
        let mut results = some();
        let row = Event {
            who: EventWriter::Usertrace,
            how: FROM_C.into(),
            payload: PAYLOAD.into(),
            ours: 1.04,
            ..results.events.events[0].clone()
        };
        results.events.events.push(row);
        let text = report(&results);
        assert!(text.contains("| at most 1.05 × | 1.04 × | met |"), "{text}");
        results.events.events.last_mut().unwrap().ours = 1.06;
        let text = report(&results);
        assert!(
            text.contains("| at most 1.05 × | 1.06 × | **missed** |"),
            "{text}"
        );
    }

    #[test]
    fn the_layer_has_targets() {
        let mut results = some();
        let row = |who, how: &str, ours| Event {
            who,
            how: how.into(),
            payload: TRACING_PAYLOAD.into(),
            ours,
            ..results.events.events[0].clone()
        };
        let rows = [
            row(EventWriter::Usertrace, LAYER, 2.5),
            row(EventWriter::Tracing, FORMATTED, 25.0),
        ];
        results.events.events.extend(rows);
        let text = report(&results);
        assert!(
            text.contains("| at most 1.8 × | 2.50 × | **missed** |"),
            "{text}"
        );
        assert!(text.contains("| at least 5 × | 10.0 × | met |"), "{text}");
        results.events.events.last_mut().unwrap().ours = 12.0;
        let text = report(&results);
        assert!(
            text.contains("| at least 5 × | 4.8 × | **missed** |"),
            "{text}"
        );
    }

    #[test]
    fn kernel_work_has_targets() {
        let mut counts = Counts {
            floor: 30.0,
            ours: 60.0,
            ours_fresh: 80.0,
            with_vtid: None,
            user_events: 1200.0,
            uprobe: 2400.0,
            uprobe_stepped: 2800.0,
            faults: Some(Faults {
                memfd: 4000.0,
                memfd_in_order: 4000.0,
                alone: 2400.0,
                in_order: 1400.0,
            }),
            idle_calls: Some(IdleCalls {
                getppid: 200.0,
                update: 400.0,
                switch: 300.0,
            }),
            volume: Some(Volume {
                ours: 6_000_000.0,
                copied: 800_000.0,
                pipe: 1_000_000.0,
                ftrace: 1_200_000.0,
                spliced: 1_100_000.0,
            }),
            starts: Some(Starts {
                one: 10_000.0,
                many: 10_100.0,
                one_by_signal: 11_000.0,
                half_by_signal: 11_000.0 + 499.0 * 1000.0,
                many_by_signal: 11_000.0 + 999.0 * 1000.0,
            }),
        };
        assert_eq!(missed(&counts), 0);
        assert_eq!(counts.targets().len(), 9);
        let mut results = some();
        results.instructions = Some(counts.clone());
        let text = report(&results);
        for line in [
            "| ring, one page at a time | 2400 | 0.60 |",
            "| `ltt_update` | 400 | 2.00 |",
            "| 1000 | 10100 | 1010000 |",
            "costs 1000 instructions",
            "| `cat` of a pipe | 1000000 | 1.00 |",
            "| 6000000 | 6.00 |",
        ] {
            assert!(text.contains(line), "{text}");
        }

        counts.faults = Some(Faults {
            memfd: 4000.0,
            memfd_in_order: 3000.0,
            alone: 2700.0,
            in_order: 1400.0,
        });
        assert_eq!(missed(&counts), 2);
        counts.idle_calls = Some(IdleCalls {
            getppid: 200.0,
            update: 401.0,
            switch: 500.0,
        });
        assert_eq!(missed(&counts), 4);
        counts.starts = Some(Starts {
            one: 10_000.0,
            many: 50_000.0,
            one_by_signal: 11_000.0,
            half_by_signal: 500_000.0,
            many_by_signal: 2_000_000.0,
        });
        assert_eq!(missed(&counts), 6);
    }

    fn missed(counts: &Counts) -> usize {
        counts.targets().iter().filter(|target| !target.met).count()
    }

    #[test]
    fn figures_are_put_between_their_marks() {
        let text = "a\n<!-- bench -->\nold\n<!-- /bench -->\nb\n";
        assert_eq!(
            with_figures(text, "new\n").as_deref(),
            Some("a\n<!-- bench -->\nnew\n<!-- /bench -->\nb\n")
        );
        assert_eq!(with_figures("a", "new\n"), None);
    }

    #[test]
    fn missing_measurements_are_left_out() {
        let mut results = some();
        results.events.events.clear();
        assert_eq!(results.targets(), []);
        assert_eq!(figures(&results), "");
        assert!(!report(&results).contains("Instructions"));
    }
}
