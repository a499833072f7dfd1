//! `usertrace generate markdown`: the reference of all commands, as one page.
//!
//! `clap-markdown` 0.1.5 cannot make this page: it prints examples as prose without escaping `*`,
//! `_` and `<`, writes `--json[=FILE]` as `--json <FILE>`, and has no place for the variables of a
//! command. Its options change only the title, the contents, aliases and the footer.

use std::fmt::Write as _;

use clap::{Arg, Command};

use crate::environment;

/// Where a line of prose ends.
const WIDTH: usize = 100;

const HEAD: &str = "\
<!-- Made by `usertrace generate markdown >docs/reference/commands.md`. Do not edit it by hand. -->
# Commands

All commands, their options, examples and exit statuses. `usertrace COMMAND --help` and
`man usertrace-COMMAND` have the same texts.

";

/// The page. `command` is built, so that all commands have their whole names.
pub(crate) fn page(command: &Command) -> String {
    let mut page = HEAD.to_owned();
    page += "| command | |\n|---|---|\n";
    for command in command.get_subcommands() {
        let name = display_name(command);
        let anchor = name.replace(' ', "-");
        let about = cell(&about(command));
        let _ = writeln!(page, "| [`{name}`](#{anchor}) | {about} |");
    }
    for command in command.get_subcommands() {
        section(&mut page, command, 2);
    }
    page
}

fn display_name(command: &Command) -> String {
    let name = command.get_bin_name().unwrap_or(command.get_name());
    name.to_owned()
}

fn about(command: &Command) -> String {
    let about = command.get_about().map(ToString::to_string);
    about.unwrap_or_default()
}

/// A command, and its commands one level below.
fn section(page: &mut String, command: &Command, level: usize) {
    let name = display_name(command);
    let _ = writeln!(page, "\n{} {name}\n", "#".repeat(level));
    prose(page, &format!("{}.", about(command)));
    let usage = command.clone().render_usage().to_string();
    let usage = usage.strip_prefix("Usage: ").unwrap_or(&usage);
    let usage: Vec<_> = usage.lines().map(str::trim).collect();
    let _ = writeln!(page, "\n```text\n{}\n```", usage.join("\n"));
    options(page, command, level > 2);
    let help = command.get_after_help().map(ToString::to_string);
    after_help(page, &help.unwrap_or_default());
    let variables: Vec<_> = environment::of(command)
        .map(|variable| format!("`{}`", variable.name))
        .collect();
    if !variables.is_empty() {
        page.push('\n');
        let link = "[environment](environment.md)";
        prose(
            page,
            &format!("Variables ({link}): {}.", variables.join(", ")),
        );
    }
    for command in command.get_subcommands() {
        section(page, command, level + 1);
    }
}

/// Arguments first, then options, in the order of the help. Global options are those of the command
/// above, and are not repeated `below` it.
fn options(page: &mut String, command: &Command, below: bool) {
    let shown = |arg: &&Arg| {
        let is_builtin = matches!(arg.get_id().as_str(), "help" | "version");
        let is_repeated = below && arg.is_global_set();
        !(arg.is_hide_set() || is_builtin || is_repeated)
    };
    let args: Vec<_> = command.get_arguments().filter(shown).collect();
    let (positional, named): (Vec<_>, Vec<_>) =
        args.into_iter().partition(|arg| arg.is_positional());
    if positional.is_empty() && named.is_empty() {
        return;
    }
    page.push_str("\n| argument or option | |\n|---|---|\n");
    for arg in positional.into_iter().chain(named) {
        let _ = writeln!(
            page,
            "| {} | {} |",
            written(arg).replace('|', "\\|"),
            cell(&meaning(arg))
        );
    }
}

/// How an argument is written on the command line.
fn written(arg: &Arg) -> String {
    let names = arg.get_value_names().unwrap_or_default();
    let value = names
        .iter()
        .map(|name| name.as_str())
        .collect::<Vec<_>>()
        .join(" ");
    let takes_value = arg.get_action().takes_values();
    if arg.is_positional() {
        let name = if value.is_empty() {
            arg.get_id().as_str().to_uppercase()
        } else {
            value
        };
        return format!("`{name}`");
    }
    let mut forms = Vec::new();
    if let Some(short) = arg.get_short() {
        forms.push(format!("`-{short}`"));
    }
    if let Some(long) = arg.get_long() {
        let is_optional = arg
            .get_num_args()
            .is_some_and(|count| count.min_values() == 0);
        forms.push(match (takes_value, is_optional) {
            (false, _) => format!("`--{long}`"),
            (true, false) => format!("`--{long} {value}`"),
            (true, true) => format!("`--{long}[={value}]`"),
        });
    }
    forms.join(", ")
}

/// What an argument does, with its values and its default.
fn meaning(arg: &Arg) -> String {
    let help = arg.get_long_help().or_else(|| arg.get_help());
    let mut text = help.map(ToString::to_string).unwrap_or_default();
    if !arg.is_hide_possible_values_set() && arg.get_action().takes_values() {
        let values = arg.get_possible_values();
        let names: Vec<_> = values.iter().map(|value| value.get_name()).collect();
        if !names.is_empty() {
            let _ = write!(text, " [possible values: {}]", names.join(", "));
        }
    }
    if !arg.is_hide_default_value_set() && arg.get_action().takes_values() {
        let values = arg.get_default_values().iter();
        let values: Vec<_> = values.map(|value| value.to_string_lossy()).collect();
        if !values.is_empty() {
            let _ = write!(text, " [default: {}]", values.join(", "));
        }
    }
    text
}

/// The paragraphs behind the options: examples, notes, and the exit status.
fn after_help(page: &mut String, text: &str) {
    for paragraph in text.split("\n\n").filter(|paragraph| !paragraph.is_empty()) {
        page.push('\n');
        if let Some(examples) = paragraph.strip_prefix("Examples:\n") {
            page.push_str("```text\n");
            for line in examples.lines() {
                let _ = writeln!(page, "{}", line.strip_prefix("  ").unwrap_or(line));
            }
            page.push_str("```\n");
        } else if paragraph.lines().any(|line| line.starts_with(' ')) {
            // A table of its own, whose columns are aligned.
            let _ = writeln!(page, "```text\n{paragraph}\n```");
        } else if let Some(status) = paragraph.strip_prefix("Exit status: ") {
            prose(page, &format!("**Exit status:** {}", plain(status)));
        } else {
            prose(page, &plain(paragraph));
        }
    }
}

/// A text in a cell of a table.
fn cell(text: &str) -> String {
    plain(&text.replace('\n', " ")).replace('|', "\\|")
}

/// A text with what Markdown would take for its own escaped.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '*' | '_' | '<' | '`' | '[' | ']' | '\\') {
            plain.push('\\');
        }
        plain.push(c);
    }
    plain
}

/// Wraps a paragraph.
fn prose(page: &mut String, text: &str) {
    let mut column = 0;
    for word in text.split_whitespace() {
        let len = word.chars().count();
        if column > 0 && column + 1 + len > WIDTH {
            page.push('\n');
            column = 0;
        } else if column > 0 {
            page.push(' ');
            column += 1;
        }
        page.push_str(word);
        column += len;
    }
    page.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_and_emphasis_are_escaped() {
        assert_eq!(cell("a|b *c*\n<d>"), r"a\|b \*c\* \<d>");
    }

    #[test]
    fn prose_is_wrapped() {
        let mut page = String::new();
        prose(&mut page, &"word ".repeat(40));
        assert!(page.lines().all(|line| line.len() <= WIDTH), "{page}");
        assert_eq!(page.split_whitespace().count(), 40);
    }
}
