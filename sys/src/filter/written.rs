//! Filters as people write them.

/// A word of a filter: a pattern, `0` or `1`, and a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written<'a> {
    /// The pattern, with `!` if it refuses.
    pub pattern: &'a [u8],
    /// What follows `if`, up to the end of the line.
    pub condition: Option<&'a [u8]>,
}

/// Splits a filter into its words. `separates` says which bytes stand between words; a line feed
/// always does.
///
/// The word `if` after a pattern begins its condition, which ends with the line.
pub fn written(
    text: &[u8],
    separates: impl Fn(u8) -> bool + Copy,
) -> impl Iterator<Item = Written<'_>> {
    let lines = text.split(|byte| *byte == b'\n');
    lines.flat_map(move |line| words_of_line(line, separates))
}

fn words_of_line(
    mut rest: &[u8],
    separates: impl Fn(u8) -> bool + Copy,
) -> impl Iterator<Item = Written<'_>> {
    let word = move |from: &[u8]| -> Option<(usize, usize)> {
        let start = from.iter().position(|byte| !separates(*byte))?;
        let len = from[start..].iter().position(|byte| separates(*byte));
        Some((start, len.map_or(from.len(), |len| start + len)))
    };
    std::iter::from_fn(move || {
        let (start, end) = word(rest)?;
        let pattern = &rest[start..end];
        rest = &rest[end..];
        let condition = match word(rest) {
            Some((start, end)) if &rest[start..end] == b"if" => {
                let condition = rest[end..].trim_ascii();
                rest = &[];
                Some(condition)
            }
            _ => None,
        };
        Some(Written { pattern, condition })
    })
}

/// Joins words of a filter: one with a condition ends its line.
pub fn join<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let mut text = String::new();
    let mut separator = "";
    for word in words {
        text.push_str(separator);
        text.push_str(word);
        let mut parts = written(word.as_bytes(), |byte| byte.is_ascii_whitespace());
        let has_condition = parts.any(|part| part.condition.is_some());
        separator = if has_condition { "\n" } else { " " };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> Vec<(&str, Option<&str>)> {
        let string = |bytes| std::str::from_utf8(bytes).unwrap();
        let separates = |byte: u8| byte.is_ascii_whitespace() || byte == b',';
        written(text.as_bytes(), separates)
            .map(|word| (string(word.pattern), word.condition.map(string)))
            .collect()
    }

    #[test]
    fn a_condition_ends_with_its_line() {
        for (text, expected) in [
            ("", &[][..]),
            (" a,!b\tc ", &[("a", None), ("!b", None), ("c", None)]),
            (
                "a b if x == \"p, q\" ",
                &[("a", None), ("b", Some("x == \"p, q\""))],
            ),
            (
                "a if x\nb\nif if if",
                &[("a", Some("x")), ("b", None), ("if", Some("if"))],
            ),
            ("a if", &[("a", Some(""))]),
            ("a\nif x", &[("a", None), ("if", None), ("x", None)]),
            ("a iffy", &[("a", None), ("iffy", None)]),
        ] {
            assert_eq!(parts(text), expected, "{text:?}");
        }
    }

    #[test]
    fn joined_words_are_parsed_as_before() {
        let words = ["1", "a", "b if x > 1", "!c if y", "d"];
        let text = join(words);
        assert_eq!(text, "1 a b if x > 1\n!c if y\nd");
        assert_eq!(parts(&text).len(), words.len());
    }
}
