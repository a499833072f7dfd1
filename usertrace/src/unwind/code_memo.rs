//! What is remembered of this process's code, for all threads.

use super::cache::Cache;
use super::hints::Hints;

/// One object, so that an idle process, which has no stacks, touches no page of it.
#[derive(Debug)]
pub(super) struct CodeMemo {
    pub(super) rules: Cache,
    pub(super) hints: Hints,
}

pub(super) static CODE: CodeMemo = CodeMemo {
    rules: Cache::new(),
    hints: Hints::new(),
};
