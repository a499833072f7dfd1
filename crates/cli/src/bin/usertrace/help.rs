//! How help is shown: `-h` in short, `--help` with everything, both as wide as the terminal.

use clap::Command;

/// Columns of an example that need not be shown in two lines.
const WIDE: usize = 78;

/// A command line with help for a terminal. (The manual is made of the texts as they are.)
pub(crate) fn shown(command: Command) -> Command {
    let name = command.get_name().to_owned();
    for_terminal(command, &name)
}

/// `name`: the command's whole name.
fn for_terminal(command: Command, name: &str) -> Command {
    let text = command.get_after_help().map(ToString::to_string);
    let command = match text {
        None => command,
        Some(text) => command
            .after_long_help(reflow(&text))
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

/// An argument's help for `-h`: the first of its statements, and its default.
fn in_short(text: &str) -> String {
    let default = text.find(" [default:").unwrap_or(text.len());
    let (text, default) = text.split_at(default);
    let end = text.find([':', ';']).unwrap_or(text.len());
    format!("{}{default}", &text[..end])
}

/// Makes one line of each paragraph, which is broken where the terminal ends. Examples, which are
/// indented, stay as they are; but what each is for goes in front of it if that is too long for a
/// line with one of them.
fn reflow(text: &str) -> String {
    let is_wide = text
        .lines()
        .any(|line| line.starts_with(' ') && line.len() > WIDE);
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
                    lines.extend(continued(example.trim_end()));
                }
                _ if is_prose => lines.push(line.to_owned()),
                _ => lines.extend(continued(line)),
            },
        }
        is_open = is_prose;
    }
    lines.join("\n")
}

/// An example in lines that are not too long, as a shell takes them: broken at spaces that are not
/// in quotes.
fn continued(example: &str) -> Vec<String> {
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
        } else if line.len() + word.len() + " ".len() + " \\".len() <= WIDE {
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
    fn a_short_help_is_a_statement_and_the_default() {
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
    fn paragraphs_become_lines() {
        let long = "x".repeat(WIDE);
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
            assert_eq!(reflow(text), expected);
        }
    }
}
