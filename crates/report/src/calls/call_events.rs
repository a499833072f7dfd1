//! Follows the calls of all threads by their events.

use std::collections::HashMap;
use std::rc::Rc;

use usertrace_reader::{Event, value};
use usertrace_symbols::Resolver;

use super::names::FunctionNames;
use super::stack::{Call, CallStack};
use crate::fields::integer_field;
use crate::spans::thread::thread;

/// Most threads with calls, and most open calls of all threads. Beyond them, all are forgotten.
const MAX_THREADS: usize = 1 << 16;
const MAX_OPEN: usize = 1 << 22;

/// How many calls of a thread may be the caller.
const MAX_CALLERS: usize = 256;

/// What an event is, and where its addresses are.
#[derive(Clone, Copy, Debug)]
struct Class {
    is_entry: bool,
    function: usize,
    call_site: usize,
}

impl Class {
    fn of(event: &Event<'_>) -> Option<Self> {
        let is_entry = match &event.class.name[..] {
            "function:entry" => true,
            "function:exit" => false,
            _ => return None,
        };
        let fields = &event.class.fields;
        Some(Self {
            is_entry,
            function: integer_field(fields, "function")?,
            call_site: integer_field(fields, "call_site")?,
        })
    }
}

/// A thread: of a process, if it is known, or all of them together.
pub(crate) type ThreadKey = (usize, Option<i64>);

/// What an event did.
#[derive(Debug)]
pub struct Step {
    /// Whether a function begins or ends.
    pub is_entry: bool,
    /// Address of the function.
    pub function: u64,
    /// The function's name.
    pub name: Rc<str>,
    /// The thread, if it is known.
    pub thread: Option<i64>,
    /// How many calls are around it.
    pub depth: usize,
    /// Calls that were left without an exit before, the innermost first.
    pub left: Vec<Call>,
    /// The call that ends, if its entry is known.
    pub ended: Option<Call>,
}

/// The calls of all threads.
#[derive(Debug, Default)]
pub struct Calls {
    classes: HashMap<(usize, u32, u16), Option<Class>>,
    threads: HashMap<ThreadKey, CallStack>,
    /// Open calls of all threads.
    open: usize,
    /// Names of functions.
    pub names: FunctionNames,
}

impl Calls {
    /// Takes an event. `None`: it is not about a call. The resolver must have noted the events
    /// about modules.
    pub fn event(
        &mut self,
        event: &Event<'_>,
        mut resolver: Option<&mut Resolver>,
    ) -> Option<Step> {
        let key = (event.trace.number(), event.stream.id, event.class.id);
        let class = *self.classes.entry(key).or_insert_with(|| Class::of(event));
        let class = class?;
        let field = |index| value::integer(&event.class.fields, index, event.payload);
        let (function, call_site) = (field(class.function)?, field(class.call_site)?);
        let process = event.trace.process();
        let thread = thread(event);
        if self.threads.len() >= MAX_THREADS {
            // Threads that have ended, mostly.
            self.threads.retain(|_, stack| !stack.calls().is_empty());
        }
        if self.threads.len() >= MAX_THREADS || self.open >= MAX_OPEN {
            self.threads.clear();
            self.open = 0;
        }
        let stack = self.threads.entry((process, thread)).or_default();
        let before = stack.calls().len();
        let names = &mut self.names;
        let name = names.function(resolver.as_deref_mut(), process, function);
        let (left, ended) = match class.is_entry {
            true => {
                let caller = names.caller(resolver.as_deref_mut(), process, call_site);
                // The innermost call of the caller, if the innermost call is not of it.
                let callers: Vec<u64> = match &caller {
                    None => Vec::new(),
                    Some(caller) => {
                        let calls = stack.calls().iter().rev().take(MAX_CALLERS);
                        let mut functions = calls.map(|call| call.function);
                        let is_it = |function: &u64| {
                            *names.function(resolver.as_deref_mut(), process, *function) == **caller
                        };
                        functions.find(is_it).into_iter().collect()
                    }
                };
                let call = Call {
                    function,
                    call_site,
                    begin: event.ns,
                    node: 0,
                    below: 0,
                };
                let left = stack.enter(call, |function| callers.contains(&function));
                (left, None)
            }
            false => stack.exit(function, call_site, event.ns),
        };
        let after = stack.calls().len();
        self.open = self.open - before + after;
        let depth = after - usize::from(class.is_entry);
        Some(Step {
            is_entry: class.is_entry,
            function,
            name,
            thread,
            depth,
            left,
            ended,
        })
    }

    /// The thread of an event, if it is known.
    #[must_use]
    pub fn thread_of(&self, event: &Event<'_>) -> Option<i64> {
        thread(event)
    }

    /// How many calls a thread is in.
    #[must_use]
    pub fn depth(&self, process: usize, thread: Option<i64>) -> usize {
        let stack = self.threads.get(&(process, thread));
        stack.map_or(0, |stack| stack.calls().len())
    }

    /// The stack of a thread.
    pub(super) fn stack(&mut self, process: usize, thread: Option<i64>) -> Option<&mut CallStack> {
        self.threads.get_mut(&(process, thread))
    }

    /// Ends all calls, at the times that `end` returns for their processes. Returns them by
    /// process.
    pub(super) fn end(&mut self, end: impl Fn(usize) -> i64) -> Vec<(usize, Vec<Call>)> {
        let threads = self.threads.drain();
        threads
            .map(|((process, _), mut stack)| (process, stack.end(end(process))))
            .collect()
    }

    /// Forgets the classes of events: the reader may have read other declarations.
    pub fn forget_classes(&mut self) {
        self.classes.clear();
    }
}
