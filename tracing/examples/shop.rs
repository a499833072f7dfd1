//! A program that uses `tracing` and `log`, and knows nothing of usertrace but for one line in
//! `main`.
//!
//! ```sh
//! cargo build --release -p usertrace -p usertrace-tracing --example shop --bin usertrace
//! target/release/usertrace record -o traces -- target/release/examples/shop
//! babeltrace2 traces
//! ```

use std::thread;

use tracing::{info, info_span, warn};
use tracing_subscriber::prelude::*;

fn serve(order: u64) {
    let _span = info_span!("serve", order).entered();
    log::debug!("looking for order {order}");
    match order % 3 {
        0 => warn!(order, "not found"),
        _ => info!(bytes = order * 100, path = %format_args!("/orders/{order}"), "found"),
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let subscriber = tracing_subscriber::registry().with(usertrace_tracing::Layer::new());
    // Not `init`, which takes the records of `log`, too, or not, as features have it.
    tracing::subscriber::set_global_default(subscriber)?;
    tracing_log::LogTracer::init()?;

    thread::scope(|scope| {
        for shop in 0..2 {
            scope.spawn(move || (1..=3).for_each(|n| serve(3 * shop + n)));
        }
    });
    Ok(())
}
