//! Help texts for a terminal: a summary for `-h`, everything for `--help`, both as wide as the
//! terminal.

use clap::Command;

/// Longest example, in columns, that stays on one line.
const MAX_EXAMPLE: usize = 78;

/// Adapts the help of a command line to a terminal. The manual pages use the texts unchanged.
pub(crate) fn shown(command: Command) -> Command {
    let name = command.get_name().to_owned();
    for_terminal(command, &name)
}

/// Adapts the help of a command and its subcommands. `name`: the command's full name.
fn for_terminal(command: Command, name: &str) -> Command {
    let text = command.get_after_help().map(ToString::to_string);
    let command = match text {
        None => command,
        Some(text) => command
            .after_long_help(join_paragraphs(&text))
            .after_help(format!("{name} --help has examples, and says more.")),
    };
    let command = command.mut_args(|arg| match arg.get_help().map(ToString::to_string) {
        None => arg,
        Some(text) => arg.help(in_short(&text)).long_help(text),
    });
    command.mut_subcommands(|command| {
        let name = format!("{name} {}", command.get_name());
        for_terminal(command, &name)
    })
}

/// An argument's help for `-h`: its first clause, and its default.
fn in_short(text: &str) -> String {
    let default = text.find(" [default:").unwrap_or(text.len());
    let (text, default) = text.split_at(default);
    let end = text.find([':', ';']).unwrap_or(text.len());
    format!("{}{default}", &text[..end])
}

/// Joins the lines of each paragraph, so that the terminal can break them. Examples are indented
/// and stay unchanged. If any example is long, the comments of all move to lines of their own.
fn join_paragraphs(text: &str) -> String {
    let is_wide = text
        .lines()
        .any(|line| line.starts_with(' ') && line.len() > MAX_EXAMPLE);
    let mut lines: Vec<String> = Vec::new();
    let mut is_open = false;
    for line in text.lines() {
        let is_prose = !line.is_empty() && !line.starts_with(' ');
        match lines.last_mut() {
            Some(last) if is_open && is_prose => {
                last.push(' ');
                last.push_str(line);
            }
            _ => match line.split_once(" # ") {
                Some((example, comment)) if !is_prose && is_wide => {
                    lines.push(format!("  # {comment}"));
                    lines.extend(split_example(example.trim_end()));
                }
                _ if is_prose => lines.push(line.to_owned()),
                _ => lines.extend(split_example(line)),
            },
        }
        is_open = is_prose;
    }
    lines.join("\n")
}

/// Splits an example into lines of limited length, with backslashes as in a shell. It breaks at
/// spaces outside quotes.
fn split_example(example: &str) -> Vec<String> {
    let (mut lines, mut line) = (Vec::new(), String::new());
    let mut quote = None;
    let word = |c: char| {
        quote = match quote {
            None if matches!(c, '\'' | '"') => Some(c),
            Some(open) if open == c => None,
            other => other,
        };
        c == ' ' && quote.is_none()
    };
    for word in example.trim_start().split(word) {
        if line.is_empty() {
            line = format!("  {word}");
        } else if line.len() + word.len() + " ".len() + " \\".len() <= MAX_EXAMPLE {
            line = format!("{line} {word}");
        } else {
            lines.push(format!("{line} \\"));
            line = format!("      {word}");
        }
    }
    if !example.is_empty() || lines.is_empty() {
        lines.push(line.trim_end().to_owned());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_help_has_first_clause_and_default() {
        for (text, short) in [
            ("Do it", "Do it"),
            ("Do it: so, or so; at once", "Do it"),
            ("Do it; not yet [default: now]", "Do it [default: now]"),
            ("Do it [default: a; b]", "Do it [default: a; b]"),
        ] {
            assert_eq!(in_short(text), short);
        }
    }

    #[test]
    fn paragraphs_are_joined_and_examples_kept() {
        let long = "x".repeat(MAX_EXAMPLE);
        for (text, expected) in [
            (
                "Examples:\n  a  # b\n  c\n\nOne\ntwo.\n\nExit: 0.",
                "Examples:\n  a  # b\n  c\n\nOne two.\n\nExit: 0.",
            ),
            (
                &format!("  a  # b\n  {long}  # c"),
                &format!("  # b\n  a\n  # c\n  {long}"),
            ),
        ] {
            assert_eq!(join_paragraphs(text), expected);
        }
    }
}
