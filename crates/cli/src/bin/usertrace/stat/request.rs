//! What to count, as `-e` says it.

use usertrace_reader::{Counter, Patterns};
use usertrace_sys::count::CountRequest;

/// What to count, in the order in which events look for a place.
#[derive(Clone, Debug, Default)]
pub(super) struct Requests(pub(super) Vec<Request>);

/// One argument of `-e`.
#[derive(Clone, Debug)]
pub(super) struct Request {
    /// As the library and the kernel understand it, without the condition.
    pub(super) text: String,
    /// The pattern and the condition, as a filter of a trace has them.
    filter: String,
    pattern: String,
    value: String,
    key: String,
    histogram: bool,
}

/// Parses an argument of `-e`.
pub(super) fn request(text: &str) -> Result<Request, String> {
    let parsed = CountRequest::parse_with_condition(text.as_bytes());
    let parsed = parsed.map_err(|error| error.with_caret(text.as_bytes()).to_string())?;
    let (parsed, condition) = parsed;
    let name =
        |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned();
    let pattern = name(Some(parsed.pattern));
    let filter = match condition {
        None => pattern.clone(),
        Some(condition) => format!("{pattern} if {}", name(Some(condition))),
    };
    Patterns::check(&[&filter]).map_err(|error| error.to_string())?;
    let mut words: Vec<_> = text.split_whitespace().collect();
    if let Some(condition) = condition {
        let condition = name(Some(condition));
        // With the word `if` in front.
        words.truncate(words.len() - condition.split_whitespace().count() - 1);
    }
    Ok(Request {
        text: words.join(" "),
        filter,
        pattern,
        value: name(parsed.value.map(|value| value.name)),
        key: name(parsed.key),
        histogram: parsed.value.is_some_and(|value| value.histogram),
    })
}

impl Requests {
    /// The filter of a trace that counts these. An event is for the first request whose pattern
    /// matches it, whether that request's condition holds or not. Of a filter, the last pattern
    /// decides.
    pub(super) fn filter(&self) -> Vec<String> {
        let requests = self.0.iter().rev();
        requests.map(|request| request.filter.clone()).collect()
    }

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
        let requests =
            ["a:* by x if x > 1  && y == \"a  if b\"", "b"].map(|text| request(text).unwrap());
        assert_eq!(requests[0].text, "a:* by x");
        let filter = Requests(requests.to_vec()).filter();
        assert_eq!(filter, ["b", "a:* if x > 1  && y == \"a  if b\""]);
        let error = request("a:* if x >").unwrap_err();
        assert!(error.contains("\n") && error.contains('^'), "{error}");
        let error = request("a:* hits(size)").unwrap_err();
        assert!(error.contains("\n") && error.contains('^'), "{error}");
    }
}
