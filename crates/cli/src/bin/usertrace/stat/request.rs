//! What to count, as `-e` says it.

use usertrace_reader::{Counter, Patterns};
use usertrace_sys::count::CountRequest;

/// What to count, in the order in which events look for a place.
#[derive(Clone, Debug, Default)]
pub(super) struct Requests(pub(super) Vec<Request>);

/// One argument of `-e`.
#[derive(Clone, Debug)]
pub(super) struct Request {
    /// As the library and the kernel understand it.
    pub(super) text: String,
    pub(super) pattern: String,
    value: String,
    key: String,
    histogram: bool,
}

/// Parses an argument of `-e`.
pub(super) fn request(text: &str) -> Result<Request, String> {
    let parsed = CountRequest::parse(text.as_bytes());
    let parsed = parsed.map_err(|error| error.with_caret(text.as_bytes()).to_string())?;
    let name =
        |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned();
    let pattern = name(Some(parsed.pattern));
    Patterns::check(&[&pattern]).map_err(|error| error.to_string())?;
    Ok(Request {
        text: text.split_whitespace().collect::<Vec<_>>().join(" "),
        pattern,
        value: name(parsed.value.map(|value| value.name)),
        key: name(parsed.key),
        histogram: parsed.value.is_some_and(|value| value.histogram),
    })
}

impl Requests {
    /// Whether the histogram of a counter is wanted. Traces do not say, so all of theirs are.
    pub(super) fn wants_histogram(&self, counter: &Counter) -> bool {
        let is_of = |request: &&Request| {
            (&request.value, &request.key) == (&counter.value_name, &counter.key_name)
                && Patterns::new(&[&request.pattern]).is_ok_and(|of| of.accept(&counter.event))
        };
        self.0.iter().find(is_of).is_none_or(|of| of.histogram)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histograms_are_shown_where_they_are_wanted() {
        let requests = Requests(
            ["a:* sum(size)", "b:* hist(size) by  path"]
                .map(|text| request(text).unwrap())
                .to_vec(),
        );
        assert_eq!(requests.0[1].text, "b:* hist(size) by path");
        let wants = |event: &str, key: &str| {
            requests.wants_histogram(&Counter {
                event: event.into(),
                value_name: "size".into(),
                key_name: key.into(),
                ..Counter::default()
            })
        };
        assert!(!wants("a:x", ""));
        assert!(wants("b:x", "path"));
        assert!(Requests::default().wants_histogram(&Counter::default()));
        let error = request("a:* hits(size)").unwrap_err();
        assert!(error.contains("\n") && error.contains('^'), "{error}");
    }
}
