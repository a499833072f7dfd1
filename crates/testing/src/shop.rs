//! The events of the program `shop`, which is an example of the crate `usertrace-tracing`.

use std::collections::HashMap;

/// Checks the program's events: each is a name, and its fields as `babeltrace2` prints them.
pub fn check<'a>(events: impl Iterator<Item = (&'a str, &'a str)>) {
    let mut orders = HashMap::new();
    let mut counts = HashMap::<String, usize>::new();
    for (name, fields) in events {
        let span = value(fields, "span");
        if name == "shop:serve.new" {
            assert_eq!(value(fields, "parent"), "0");
            orders.insert(span, value(fields, "order"));
        }
        let order = orders[span];
        if fields.contains("not found") {
            assert_eq!(value(fields, "order"), order, "{fields}");
        } else if fields.contains("found") {
            assert_eq!(value(fields, "path"), format!("\"/orders/{order}\""));
            assert_eq!(value(fields, "bytes"), format!("{order}00"));
        } else if name == "log:log_event" {
            let message = format!("\"looking for order {order}\"");
            assert_eq!(value(fields, "message"), message);
        }
        let name = name.split_once(".rs-").map_or(name, |(file, _)| file);
        *counts.entry(name.to_owned()).or_default() += 1;
    }
    let expected = [
        "shop:serve.new",
        "shop:serve.enter",
        "shop:serve.exit",
        "shop:serve.close",
        "log:log_event",
        "shop:shop",
    ];
    assert_eq!(
        counts,
        HashMap::from(expected.map(|name| (name.to_owned(), 6)))
    );
}

/// The value of a field, as it is printed.
fn value<'a>(fields: &'a str, name: &str) -> &'a str {
    let (_, rest) = fields.split_once(&format!(" {name} = ")).unwrap();
    let end = rest.find([',', '}']).unwrap();
    rest[..end].trim_end()
}
