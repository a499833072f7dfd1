//! A program that is traced: it serves, and it ticks.

use std::time::{Duration, Instant};

use usertrace::event;

usertrace::tracepoint! {
    /// A request was served.
    mod served {
        provider: "shop",
        name: "served",
        loglevel: Info,
        fields: { status: u16, bytes: u64, path: str },
    }
}

usertrace::tracepoint! {
    /// Now and then.
    mod tick {
        provider: "shop",
        name: "tick",
        loglevel: Debug,
        fields: { n: u32 },
    }
}

/// What it is called.
#[allow(dead_code, reason = "others have a program of that name")]
pub(crate) const NAME: &str = "server";

/// With a number: so many requests, and a tick each ten. Without: a request each millisecond, until
/// it is killed, or for long enough.
pub(crate) fn run() {
    usertrace::init();
    let count = std::env::args().nth(1);
    let count = count.and_then(|count| count.parse::<u32>().ok());
    // Only a test that fails lets it run so long.
    let until = Instant::now() + Duration::from_secs(180);
    let mut n = 0;
    while count.map_or_else(|| Instant::now() < until, |count| n < count) {
        let _ = event!(served, 200, u64::from(n), "/index.html");
        if n % 10 == 0 {
            let _ = event!(tick, n);
        }
        n += 1;
        if count.is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
