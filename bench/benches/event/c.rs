//! Events in C (`c.c`), beside the same ones in Rust. The library is linked in, so that both write
//! into the same rings.

use usertrace_bench::{EventWriter, Rows};
use usertrace_c as _;

use super::contest::{Contestant, contest};
use super::floor::Floors;
use super::ours::Ours;
use super::{KINDS, Kind, MAIN, floor, our};

unsafe extern "C" {
    safe fn bench_c_numbers(count: u64);
    safe fn bench_c_text(count: u64);
}

pub(crate) fn measure(rows: &mut Rows, ours: &Ours, floors: &Floors, rounds: usize) {
    row(rows, ours, floors, rounds, MAIN, bench_c_numbers);
    row(rows, ours, floors, rounds, &KINDS[4], bench_c_text);
}

fn row(
    rows: &mut Rows,
    ours: &Ours,
    floors: &Floors,
    rounds: usize,
    kind: &Kind,
    events: extern "C" fn(u64),
) {
    let batch = kind.batch();
    let c = Contestant::new(batch, move |_| events(batch)).prepared(|| ours.read());
    let times = contest(&[floor(floors, kind), our(ours, kind), c], 1, rounds);
    let names = [
        (EventWriter::Floor, ""),
        (EventWriter::Usertrace, "per-CPU ring"),
        (EventWriter::Usertrace, "per-CPU ring, from C"),
    ];
    let names = names.map(|(who, how)| (who, how.to_owned())).into();
    rows.add(names, kind.name, 1, &times);
}
