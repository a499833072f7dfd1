//! The syntax of systemd's unit files, as far as their settings of services go.

/// The assignments of the section `[Service]`, in order. Continued lines are joined, and comments
/// left out.
pub(super) fn service_settings(text: &str) -> Vec<(String, String)> {
    let mut settings = Vec::new();
    let mut in_service = false;
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let mut line = line.trim().to_owned();
        if is_comment(&line) {
            continue;
        }
        while let Some(start) = line.strip_suffix('\\') {
            let next = lines.by_ref().map(str::trim).find(|line| !is_comment(line));
            let Some(next) = next else {
                line = start.to_owned();
                break;
            };
            line = format!("{start} {next}");
        }
        if line.starts_with('[') {
            in_service = line == "[Service]";
        } else if let Some((name, value)) = line.split_once('=').filter(|_| in_service) {
            settings.push((name.trim().to_owned(), value.trim().to_owned()));
        }
    }
    settings
}

fn is_comment(line: &str) -> bool {
    line.starts_with(['#', ';'])
}

/// Splits a value into words, as systemd does: quotes group words, and a backslash escapes a
/// character.
pub(super) fn words(value: &str) -> Vec<String> {
    let mut words = Vec::new();
    let (mut word, mut has_word, mut quote) = (String::new(), false, None);
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => {
                word.extend(chars.next());
                has_word = true;
            }
            _ if quote == Some(c) => quote = None,
            '"' | '\'' if quote.is_none() => {
                quote = Some(c);
                has_word = true;
            }
            _ if c.is_whitespace() && quote.is_none() => {
                if has_word {
                    words.push(std::mem::take(&mut word));
                }
                has_word = false;
            }
            _ => {
                word.push(c);
                has_word = true;
            }
        }
    }
    if has_word {
        words.push(word);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_services_are_read_in_order() {
        let text = "\
[Unit]
Description=no setting of [Service]
Environment=A=1

[Service]
# Environment=B=2
Environment = \"C=3 4\" \\
; a comment between continued lines
    D=5
SystemCallFilter=
SystemCallFilter=~@mount
[Install]
Alias=x.service
";
        let settings = service_settings(text);
        let expected = [
            ("Environment", "\"C=3 4\"  D=5"),
            ("SystemCallFilter", ""),
            ("SystemCallFilter", "~@mount"),
        ];
        assert_eq!(
            settings,
            expected.map(|(n, v)| (n.to_owned(), v.to_owned()))
        );
        assert_eq!(words(&settings[0].1), ["C=3 4", "D=5"]);
        // A continuation that nothing follows ends the file.
        assert_eq!(
            service_settings("[Service]\nA=b\\"),
            [("A".to_owned(), "b".to_owned())]
        );
    }

    #[test]
    fn words_have_quotes_and_escapes() {
        assert_eq!(
            words(r#" a  'b c'd "e\"f" \  "" "#),
            ["a", "b cd", "e\"f", " ", ""]
        );
        assert!(words("  ").is_empty());
    }
}
