//! The calls that a thread is in.

/// Most calls of a thread: exits may be missing forever.
const MAX_DEPTH: usize = 4096;

/// A call that has not returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Address of the function.
    pub function: u64,
    /// Address after the call instruction. An inlined function has that of the function around it.
    pub call_site: u64,
    /// In ns since 1970.
    pub begin: i64,
    /// A number for the user of the stack.
    pub(crate) node: u32,
    /// How long the calls in it took, in ns.
    pub(crate) below: i64,
}

/// The calls that a thread is in, from the outermost on.
#[derive(Debug, Default)]
pub(super) struct CallStack {
    calls: Vec<Call>,
}

impl CallStack {
    pub(super) fn calls(&self) -> &[Call] {
        &self.calls
    }

    /// A call begins. Returns calls that were left without an exit, the innermost first.
    ///
    /// `is_caller`: whether the call site is known to be in this function.
    pub(super) fn enter(&mut self, call: Call, is_caller: impl Fn(u64) -> bool) -> Vec<Call> {
        let caller = match self.is_inlined(&call) {
            true => None,
            false => self.calls.iter().rposition(|of| is_caller(of.function)),
        };
        let mut left = match caller {
            Some(at) => {
                // Functions that are inlined into the caller have its call site.
                let site = self.calls[at].call_site;
                let inlined = self.calls[at + 1..].iter();
                let inlined = inlined.take_while(|of| of.call_site == site).count();
                self.calls.split_off(at + 1 + inlined)
            }
            None => Vec::new(),
        };
        left.reverse();
        let below = add_below(&mut left, call.begin);
        if let Some(around) = self.calls.last_mut() {
            around.below = around.below.saturating_add(below);
        }
        if self.calls.len() >= MAX_DEPTH {
            self.calls.remove(0);
        }
        self.calls.push(call);
        left
    }

    /// Whether a call is of a function that is inlined into the innermost one: it has the same call
    /// site. A call site calls one function, so the same function is called again instead.
    fn is_inlined(&self, call: &Call) -> bool {
        let calls = self.calls.iter().rev();
        let mut same = calls
            .take_while(|of| of.call_site == call.call_site)
            .peekable();
        same.peek().is_some() && same.all(|of| of.function != call.function)
    }

    /// A function exits. Returns calls within it that were left without an exit, the innermost
    /// first, and the call itself if its entry is known.
    pub(super) fn exit(
        &mut self,
        function: u64,
        call_site: u64,
        ns: i64,
    ) -> (Vec<Call>, Option<Call>) {
        let is_call = |of: &Call| (of.function, of.call_site) == (function, call_site);
        let at = self.calls.iter().rposition(is_call);
        let at = at.or_else(|| self.calls.iter().rposition(|of| of.function == function));
        let Some(at) = at else {
            return (Vec::new(), None);
        };
        let mut left = self.calls.split_off(at);
        left.reverse();
        let below = add_below(&mut left, ns);
        if let Some(around) = self.calls.last_mut() {
            around.below = around.below.saturating_add(below);
        }
        let own = left.pop();
        (left, own)
    }

    pub(super) fn set_node(&mut self, node: u32) {
        if let Some(call) = self.calls.last_mut() {
            call.node = node;
        }
    }

    /// Ends all calls, the innermost first.
    pub(super) fn end(&mut self, ns: i64) -> Vec<Call> {
        let mut left = std::mem::take(&mut self.calls);
        left.reverse();
        add_below(&mut left, ns);
        left
    }
}

/// Adds the duration of each call, the innermost first, to the one around it. Returns that of the
/// outermost.
fn add_below(calls: &mut [Call], end: i64) -> i64 {
    let mut below = 0;
    for call in calls {
        call.below = call.below.saturating_add(below);
        below = end.saturating_sub(call.begin).max(0);
    }
    below
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(function: u64, call_site: u64) -> Call {
        Call {
            function,
            call_site,
            begin: 0,
            node: 0,
            below: 0,
        }
    }

    fn functions(calls: &[Call]) -> Vec<u64> {
        calls.iter().map(|call| call.function).collect()
    }

    fn stack(calls: &[(u64, u64)]) -> CallStack {
        let mut stack = CallStack::default();
        for &(function, site) in calls {
            assert!(stack.enter(call(function, site), |_| false).is_empty());
        }
        stack
    }

    #[test]
    fn exits_end_what_is_within_them() {
        // 2 and 3 were left by an exception, 1 was not.
        let mut stack = stack(&[(1, 10), (2, 11), (3, 12)]);
        let (left, own) = stack.exit(1, 10, 0);
        assert_eq!((functions(&left), own.unwrap().function), (vec![3, 2], 1));
        assert_eq!(stack.exit(1, 10, 0), (vec![], None));
        // Of recursive calls, the one with this call site.
        let mut stack = self::stack(&[(1, 10), (1, 20), (1, 30)]);
        let (left, own) = stack.exit(1, 20, 0);
        assert_eq!((left.len(), own.unwrap().call_site), (1, 20));
        // The call site is that of an older call, or of none.
        assert_eq!(stack.exit(1, 99, 0).1.unwrap().call_site, 10);
    }

    #[test]
    fn call_sites_end_what_is_above_the_caller() {
        // 1 called 2, which called 3, which jumped back to 1.
        let mut stack = stack(&[(1, 10), (2, 11), (3, 12)]);
        let left = stack.enter(call(4, 13), |function| function == 1);
        assert_eq!(functions(&left), [3, 2]);
        assert_eq!(functions(stack.calls()), [1, 4]);
        // 5 is inlined into 4: it stays when 4's code calls something.
        let mut stack = self::stack(&[(1, 10), (4, 11), (5, 11), (6, 40)]);
        let left = stack.enter(call(7, 41), |function| function == 4);
        assert_eq!(functions(&left), [6]);
        assert_eq!(functions(stack.calls()), [1, 4, 5, 7]);
        // The call site of an inlined function is in the caller of the function around it.
        let mut stack = self::stack(&[(1, 10), (4, 11)]);
        assert!(
            stack
                .enter(call(5, 11), |function| function == 1)
                .is_empty()
        );
        // It jumped out of both, and they are called again.
        let left = stack.enter(call(4, 11), |function| function == 1);
        assert_eq!(functions(&left), [5, 4]);
        // Recursion: the innermost call is the caller.
        let mut stack = self::stack(&[(1, 10), (1, 20), (1, 21)]);
        assert!(
            stack
                .enter(call(1, 20), |function| function == 1)
                .is_empty()
        );
    }

    #[test]
    fn depth_is_bounded() {
        let mut stack = CallStack::default();
        let left: usize = (0..10_000)
            .map(|n| stack.enter(call(n, n), |_| false).len())
            .sum();
        assert_eq!((stack.calls().len(), left), (MAX_DEPTH, 0));
        assert_eq!(stack.end(0).len(), MAX_DEPTH);
    }
}
