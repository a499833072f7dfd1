//! The calls of a program whose functions are events, with their names (E8, F1).

use std::collections::BTreeMap;
use std::process::Command;

use usertrace_reader::{Item, Reader, Selection};
use usertrace_report::calls::CallTree;
use usertrace_symbols::Resolver;
use usertrace_tests_preload::{Libraries, Traces, compile_with};

/// It jumps out of functions, inlines one, recurses, is called back by the C library, and has a
/// second thread.
const PROGRAM: &str = r#"
#include <pthread.h>
#include <setjmp.h>
#include <stdlib.h>

static jmp_buf place;
__attribute__((noinline)) int leaf(int n) { __asm__ volatile(""); return n + 1; }
__attribute__((noinline)) void jumps(int n) { leaf(n); longjmp(place, 1); }
__attribute__((noinline)) void goes(int n) { jumps(n); leaf(0); }
static inline __attribute__((always_inline)) int small(int n) { return leaf(n) * 2; }
__attribute__((noinline)) int calls_small(int n) { return small(n) + leaf(n); }
__attribute__((noinline)) int again(int n) { return n == 0 ? leaf(0) : again(n - 1) + 1; }
static int compare(const void *a, const void *b)
{
    return leaf(*(const int *)a) - leaf(*(const int *)b);
}
__attribute__((noinline)) void sorts(void)
{
    int all[2] = {2, 1};
    qsort(all, 2, sizeof(int), compare);
    __asm__ volatile("");
}
__attribute__((noinline)) void *work(void *with)
{
    again(3);
    calls_small(1);
    return with;
}
int main(void)
{
    for (volatile int n = 0; n < 3; n++)
        if (setjmp(place) == 0)
            goes(n);
    leaf(7);
    sorts();
    pthread_t other;
    pthread_create(&other, 0, work, 0);
    pthread_join(other, 0);
    work(0);
    return 0;
}
"#;

/// Each function is below its caller, also after `longjmp` and where it is inlined.
///
/// Requirements: E8, F1
#[test]
fn functions_are_below_their_callers() {
    let directory = tempfile::tempdir().unwrap();
    let flags = ["-g", "-O1", "-finstrument-functions", "-pthread"];
    let program = compile_with(directory.path(), "program", PROGRAM, &flags);
    let (traces, libraries) = (Traces::new(), Libraries::all());
    let mut command = Command::new(program);
    let command = libraries.of(&mut command).env("USERTRACE_CONTEXTS", "vtid");
    let output = traces.of(command).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    traces.wait();

    let selection = Selection {
        modules: true,
        ..Selection::default()
    };
    let mut reader = Reader::open(&[traces.path().to_owned()], selection).unwrap();
    let (mut resolver, mut tree) = (Resolver::default(), CallTree::default());
    while let Some(item) = reader.next() {
        let Item::Event(event) = item else {
            panic!("{item:?}")
        };
        if resolver.note(&event) {
            tree.forget_names();
        } else {
            tree.event(&event, Some(&mut resolver));
        }
    }
    tree.finish();
    let nodes = tree.nodes();
    // The path of each function, how often it was called, and how often it had no exit.
    let mut paths: Vec<String> = Vec::new();
    let mut found = BTreeMap::new();
    for (index, node) in nodes.iter().enumerate() {
        let path = match node.parent as usize {
            parent if parent == index => String::new(),
            parent => format!("{}/{}", paths[parent], node.name),
        };
        if !path.is_empty() {
            found.insert(path.clone(), (node.calls, node.without_exit));
        }
        paths.push(path);
    }
    let expected = [
        ("/main", (1, 0)),
        ("/main/goes", (3, 3)),
        ("/main/goes/jumps", (3, 3)),
        ("/main/goes/jumps/leaf", (3, 0)),
        ("/main/leaf", (1, 0)),
        ("/main/sorts", (1, 0)),
        ("/main/sorts/compare", (1, 0)),
        ("/main/sorts/compare/leaf", (2, 0)),
        ("/main/work", (1, 0)),
        ("/main/work/again", (1, 0)),
        ("/main/work/again/again", (1, 0)),
        ("/main/work/again/again/again", (1, 0)),
        ("/main/work/again/again/again/again", (1, 0)),
        ("/main/work/again/again/again/again/leaf", (1, 0)),
        ("/main/work/calls_small", (1, 0)),
        ("/main/work/calls_small/leaf", (1, 0)),
        ("/main/work/calls_small/small", (1, 0)),
        ("/main/work/calls_small/small/leaf", (1, 0)),
        ("/work", (1, 0)),
        ("/work/again", (1, 0)),
        ("/work/again/again", (1, 0)),
        ("/work/again/again/again", (1, 0)),
        ("/work/again/again/again/again", (1, 0)),
        ("/work/again/again/again/again/leaf", (1, 0)),
        ("/work/calls_small", (1, 0)),
        ("/work/calls_small/leaf", (1, 0)),
        ("/work/calls_small/small", (1, 0)),
        ("/work/calls_small/small/leaf", (1, 0)),
    ];
    let expected = expected.map(|(path, calls)| (path.to_owned(), calls));
    assert_eq!(found, BTreeMap::from(expected));
    assert_eq!((tree.left_out(), tree.mixes_threads()), ((0, 0), false));
    // A function's time is its own and that of what it calls.
    for (index, node) in nodes.iter().enumerate() {
        let below = nodes
            .iter()
            .enumerate()
            .filter(|(at, below)| below.parent as usize == index && *at != index);
        let below: u64 = below.map(|(_, node)| node.total).sum();
        if node.parent as usize != index {
            assert_eq!(node.total, node.own + below, "{}", paths[index]);
        }
    }
}
