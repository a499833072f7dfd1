//! A traced program that serves requests.

use std::time::{Duration, Instant};

use usertrace::Outcome;

/// The program's events. [`server_events!`](crate::server_events!) declares them.
pub trait Events {
    /// A request was served.
    fn served(status: u16, bytes: u64, path: &str) -> Outcome;
    /// Ten requests were served.
    fn tick(n: u32) -> Outcome;
}

/// Declares the events `shop:served` and `shop:tick`, and the type `Events`.
#[macro_export]
macro_rules! server_events {
    () => {
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
            /// Ten requests were served.
            mod tick {
                provider: "shop",
                name: "tick",
                loglevel: Debug,
                fields: { n: u32 },
            }
        }

        /// The events of the program `server`.
        struct Events;

        impl $crate::server::Events for Events {
            fn served(status: u16, bytes: u64, path: &str) -> usertrace::Outcome {
                usertrace::event!(served, status, bytes, path)
            }

            fn tick(n: u32) -> usertrace::Outcome {
                usertrace::event!(tick, n)
            }
        }
    };
}

/// The program's name.
pub const NAME: &str = "server";

/// Serves as many requests as the program's argument says, with a tick for each ten, of which the
/// last one fails. Without an argument: a request each millisecond, until the program is killed, or
/// three minutes have passed.
pub fn run<E: Events>() {
    usertrace::init();
    let count = std::env::args().nth(1);
    let count = count.and_then(|count| count.parse::<u32>().ok());
    // Only a test that fails lets the program run so long.
    let until = Instant::now() + Duration::from_secs(180);
    let mut n = 0;
    while count.map_or_else(|| Instant::now() < until, |count| n < count) {
        let status = if n % 10 == 9 { 503 } else { 200 };
        let _ = E::served(status, u64::from(n), "/index.html");
        if n % 10 == 0 {
            let _ = E::tick(n);
        }
        n += 1;
        if count.is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
