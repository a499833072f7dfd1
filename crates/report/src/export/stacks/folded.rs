//! Folded stacks, as `flamegraph.pl`, inferno and speedscope read them.

use std::io::Write as _;

use super::source::Source;
use crate::stacks::ROOT;

/// Appends a line for each stack with a weight.
pub(super) fn write(out: &mut Vec<u8>, source: &Source<'_>) {
    let tree = source.tree();
    let children = tree.children();
    let texts: Vec<String> = tree.names.iter().map(|name| frame(&name.text)).collect();
    // The path to the node, and for each node on it the length of the path and the next child.
    let mut path = String::new();
    let mut open = vec![(ROOT, 0, 0)];
    while let Some((node, len, next)) = open.last_mut() {
        let Some(&child) = children[*node as usize].get(*next) else {
            open.pop();
            continue;
        };
        *next += 1;
        path.truncate(*len);
        if *len > 0 {
            path.push(';');
        }
        let below = &tree.nodes[child as usize];
        path.push_str(&texts[below.name as usize]);
        let own = below.own[source.by as usize];
        if own > 0 {
            let _ = writeln!(out, "{path} {own}");
        }
        open.push((child, path.len(), 0));
    }
}

/// A name without the characters that end a frame or a line.
fn frame(name: &str) -> String {
    let printable = |c: char| match c {
        ';' => ':',
        c if c.is_control() => ' ',
        c => c,
    };
    name.chars().map(printable).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_end_neither_frames_nor_lines() {
        assert_eq!(frame("<[u8; 4]>::f\n\u{85}"), "<[u8: 4]>::f  ");
    }
}
