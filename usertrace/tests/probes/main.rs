//! Probes on the fake kernel (B2).
//!
//! One test, because a process has one runtime.

use usertrace::__private::init_with;
use usertrace::Status;
use usertrace::fake::{Fake, Sizes};
use usertrace_scenarios::probes::{self, RECORDED};

usertrace_scenarios::probes_events!();

/// Requirements: B2
#[test]
fn probes_follow_their_connections() {
    let fake = Fake::new(Sizes::default());
    assert_eq!(init_with(|| Ok(fake)), Status::Attached);
    let slot = fake.create().unwrap();
    let set_active = |active| {
        match active {
            true => fake.start(slot),
            false => fake.stop(slot),
        }
        usertrace::init();
    };
    set_active(true);
    probes::run::<Events>(&set_active);
    for (process, recorded) in RECORDED.iter().enumerate() {
        let events = fake.events(process, slot);
        for (name, count) in recorded {
            let of = events.iter().filter(|seen| seen.event.name == *name);
            assert_eq!(of.count(), *count, "{name} of process {process}");
        }
    }
}
