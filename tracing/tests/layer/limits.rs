//! Values, names and counts that exceed limits.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fmt;

use tracing::field::Empty;
use tracing::{Value, info, info_span};

use crate::traced::{Traced, field};

pub(crate) fn long_values() {
    let traced = Traced::started();
    let lengths = [0, 1, 400, 480, 495, 496, 497, 504, 511, 512, 513, 3000];
    for len in lengths {
        let text = "x".repeat(len);
        info!(name: "text", text, n = 7u64);
        info!(name: "debug", text = %text, n = 7u64);
        info!(name: "pieces", text = ?format_args!("{}{}", &text[..len / 2], &text[len / 2..]), n = 7u64);
        info!(name: "ended", text = format!("{text}\0y"), other = %format_args!("{text}\0{}", 1), n = 7u64);
    }
    let seen = traced.seen(0);
    assert_eq!(seen.len(), lengths.len() * 4);
    for (seen, len) in seen.chunks(4).zip(lengths) {
        let expected = format!("{:?}", "x".repeat(len));
        for seen in seen {
            assert_eq!(field(seen, "text"), expected, "{}", seen.event.name);
            assert_eq!(field(seen, "n"), "7");
        }
        assert_eq!(field(&seen[3], "other"), expected);
    }
}

pub(crate) fn many_layouts() {
    let traced = Traced::started();
    let all: [&dyn Value; 3] = [&1u64, &-2i64, &"three"];
    for _ in 0..2 {
        for n in 0..27 {
            let of = |digit: usize| all[n / digit % 3];
            info!(name: "many", a = of(1), b = of(3), c = of(9));
        }
    }
    let lines = traced.lines();
    assert_eq!(lines.len(), 54);
    assert_eq!(lines[..27], lines[27..]);
    // In the order of layouts: the first ones have separate fields.
    assert_eq!(lines[15], "layer.limits:many 6 span=0 a=1 b=\"three\" c=-2");
    for (line, fields) in [
        (16, "a=-2 b=\\\"three\\\" c=-2"),
        (26, "a=\\\"three\\\" b=\\\"three\\\" c=\\\"three\\\""),
    ] {
        let expected = format!("layer.limits:many 6 span=0 fields=\"{fields}\"");
        assert_eq!(lines[line], expected);
    }
    assert_eq!(traced.described("layer.limits:many"), 17);
}

macro_rules! fields {
    ($name:literal, $($field:ident)*) => {
        info!(name: $name, $($field = 1u64),*)
    };
}

pub(crate) fn many_fields() {
    let traced = Traced::started();
    fields!("few", a b c d e f g h i j k l m n o p q r s t u v w x y z A B C D E F);
    fields!("many", a b c d e f g h i j k l m n o p q r s t u v w x y z A B C D E F G);
    let names = "a b c d e f g h i j k l m n o p q r s t u v w x y z A B C D E F";
    let fields = names.split(' ').map(|name| format!("{name}=1"));
    let fields = fields.collect::<Vec<_>>().join(" ");
    assert_eq!(
        traced.lines(),
        [
            format!("layer.limits:few 6 span=0 {fields}"),
            format!("layer.limits:many 6 span=0 fields=\"{fields} G=1\"")
        ]
    );
}

/// Values in another order than the fields, or of a field behind the first 32, have layouts like
/// others.
pub(crate) fn values_in_any_order() {
    let traced = Traced::started();
    let late = info_span!(
        "late",
        a = Empty,
        b = Empty,
        c = Empty,
        d = Empty,
        e = Empty,
        f = Empty,
        g = Empty,
        h = Empty,
        i = Empty,
        j = Empty,
        k = Empty,
        l = Empty,
        m = Empty,
        n = Empty,
        o = Empty,
        p = Empty,
        q = Empty,
        r = Empty,
        s = Empty,
        t = Empty,
        u = Empty,
        v = Empty,
        w = Empty,
        x = Empty,
        y = Empty,
        z = Empty,
        A = Empty,
        B = Empty,
        C = Empty,
        D = Empty,
        E = Empty,
        F = Empty,
        G = Empty,
        H = Empty,
    );
    let fields = late.metadata().unwrap().fields();
    let of = |name| fields.field(name).unwrap();
    let [a, b, last, behind] = ["a", "b", "F", "G"].map(of);
    let (one, two): (&dyn Value, &dyn Value) = (&1u64, &"two");
    for _ in 0..2 {
        late.record_all(&fields.value_set(&[(&a, Some(one)), (&b, Some(two))]));
        late.record_all(&fields.value_set(&[(&b, Some(two)), (&a, Some(one))]));
        late.record_all(&fields.value_set(&[(&b, Some(one)), (&b, Some(two))]));
        late.record_all(&fields.value_set(&[(&a, Some(two)), (&last, Some(one))]));
        late.record_all(&fields.value_set(&[(&a, Some(two)), (&behind, Some(one))]));
        late.record_all(&fields.value_set(&[(&behind, Some(one)), (&a, Some(two))]));
    }
    let lines = traced.lines();
    assert_eq!(lines[1..7], lines[7..]);
    let values: Vec<_> = lines[1..7]
        .iter()
        .map(|line| line.split_once("span=1 ").map_or("", |(_, values)| values))
        .collect();
    assert_eq!(
        values,
        [
            "a=1 b=\"two\"",
            "b=\"two\" a=1",
            "b=1 b=\"two\"",
            "a=\"two\" F=1",
            "a=\"two\" G=1",
            "G=1 a=\"two\"",
        ]
    );
    assert_eq!(traced.described("layer.limits:late.record"), 6);
}

/// A name of 200 letters and a suffix, which makes names too long.
macro_rules! long {
    ($with:literal) => {
        concat!(
            "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
            "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
            $with
        )
    };
}

pub(crate) fn long_names() {
    let traced = Traced::started();
    for _ in 0..2 {
        info!(name: long!("name"), target: long!("::target"), x = 1u64);
        info!(
            name: concat!(long!("d"), long!("e")), target: concat!(long!("b"), long!("c")),
            x = 1u64, { long!("1") } = 1u64, { long!("2") } = 2u64, { long!("3") } = 3u64,
            { long!("4") } = 4u64, { long!("5") } = 5u64, { long!("6") } = 6u64, { long!("7") } = 7u64, { long!("8") } = 8u64, { long!("9") } = 9u64, { long!("10") } = 10u64
        );
    }
    let a = "a".repeat(200);
    let fields: Vec<_> = (1..=10).map(|n| format!("{a}{n}={n}")).collect();
    let names = [("b", "d"), ("b", "d")].map(|(target, name)| {
        let [target, name] = [target, name].map(|letter| format!("{a}{letter}{}", "a".repeat(54)));
        format!(
            "{target}:{name} 6 span=0 fields=\"x=1 {}\"",
            fields.join(" ")
        )
    });
    let short = format!("{a}.target:{a}name 6 span=0 x=1");
    assert_eq!(
        traced.lines(),
        [&short, &names[0], &short, &names[1]].map(String::as_str)
    );
}

/// Counts the allocations of this thread.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: all calls go to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's arguments are passed on unchanged.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's arguments are passed on unchanged.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A value that is formatted in two pieces, without a buffer.
struct Pair(u32, &'static str);

impl fmt::Debug for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.0, self.1)
    }
}

pub(crate) fn no_allocation() {
    let traced = Traced::started();
    let text = "x".repeat(400);
    let span = info_span!("span", later = Empty);
    let turn = || {
        let before = ALLOCATIONS.get();
        span.in_scope(|| {
            info!(name: "all", a = 1u64, b = -1i64, c = 1.5, d = true, e = &*text, f = ?Pair(7, "x"), "of {}", 3);
        });
        span.record("later", 7u64);
        ALLOCATIONS.get() - before
    };
    assert_ne!(turn(), 0, "layouts are new");
    assert_eq!((0..100).map(|_| turn()).sum::<usize>(), 0);
    assert_eq!(traced.seen(0).len(), 1 + 101 * 4);
    // Values that are too long for the stack are not.
    let before = ALLOCATIONS.get();
    info!(name: "long", e = &*text.repeat(2));
    assert_ne!(ALLOCATIONS.get(), before);
}
