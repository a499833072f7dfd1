//! The macros that declare and write events.

/// Declares an event: a module with its [`Callsite`](crate::event::Callsite) and a function
/// `record`.
///
/// See [`event`](mod@crate::event) for an example, and for the types that a field can have. Events
/// are written by [`event!`](crate::event!).
///
/// For an unknown type, the compiler's error names it, and lists the known ones:
///
/// ```compile_fail
/// usertrace::tracepoint! {
///     mod wrong { provider: "a", name: "b", loglevel: Info, fields: { x: u24 } }
/// }
/// ```
#[macro_export]
macro_rules! tracepoint {
    (
        $(#[$attribute:meta])*
        $visibility:vis mod $module:ident {
            provider: $provider:literal,
            name: $name:literal,
            loglevel: $loglevel:ident,
            $(format: $format:literal,)?
            fields: { $($field:ident: $type:tt $($base:ident $labels:tt)?),* $(,)? } $(,)?
        }
    ) => {
        $(#[$attribute])*
        #[allow(unreachable_pub, reason = "the module may be private")]
        $visibility mod $module {
            /// The static part of the event.
            pub static CALLSITE: $crate::event::Callsite = {
                use $crate::__private::{DescribedField, Description, Field};
                use $crate::event::{Callsite, Loglevel};

                const DESCRIPTION: Description = Description {
                    provider: $provider,
                    name: $name,
                    loglevel: Loglevel::$loglevel,
                    format: ::core::concat!($($format)?),
                    fields: &[$(DescribedField {
                        name: ::core::stringify!($field),
                        kind: <$crate::__field_type!($type $($base)?) as Field>::KIND,
                        labels: $crate::__labels!($($labels)?),
                    }),*],
                };
                const LINE: [u8; DESCRIPTION.line_len()] = DESCRIPTION.line();
                let Ok(line) = ::core::str::from_utf8(&LINE) else {
                    ::core::panic!("parts of a text are a text");
                };
                Callsite::new($provider, $name, line)
            };

            #[used]
            #[unsafe(link_section = "usertrace_callsites")]
            static ENTRY: $crate::__private::Entry = $crate::__private::Entry::new(&CALLSITE);

            /// The event's fields by their names, as [`event!`]($crate::event!) puts them together.
            #[derive(Clone, Copy)]
            #[allow(dead_code, missing_debug_implementations, reason = "only some events are written so")]
            pub struct Fields<'a> {
                $(#[allow(missing_docs, reason = "a field of the event")]
                pub $field: <$crate::__field_type!($type $($base)?) as $crate::__private::Field>::Argument<'a>,)*
                #[doc(hidden)]
                pub __usertrace: ::core::marker::PhantomData<&'a ()>,
            }

            #[allow(dead_code, reason = "only some events are written so")]
            impl Fields<'_> {
                /// Writes the event into all traces that want it.
                #[inline(always)]
                pub fn record(self) -> $crate::event::Outcome {
                    record($(self.$field),*)
                }
            }

            // Long names: a constant would hide an argument of the same name.
            const __USERTRACE_VARIABLE: bool = {
                use $crate::__private::Field;
                false $(|| <$crate::__field_type!($type $($base)?) as Field>::SIZE == 0)*
            };
            const __USERTRACE_WORDS: usize = {
                use $crate::__private::Field;
                let size = 0usize $(+ <$crate::__field_type!($type $($base)?) as Field>::SIZE)*;
                if __USERTRACE_VARIABLE { 0 } else { size.div_ceil(8) }
            };

            /// Writes the event into all traces that want it.
            #[inline(always)]
            #[allow(clippy::too_many_arguments, reason = "an event has as many fields as it needs")]
            pub fn record(
                $($field: <$crate::__field_type!($type $($base)?) as $crate::__private::Field>::Argument<'_>),*
            ) -> $crate::event::Outcome {
                // Most arguments would go through memory, and be copied there to the payload.
                if __USERTRACE_WORDS > $crate::__private::MOST_WORDS_BY_ARGUMENTS {
                    #[allow(unused_mut, reason = "an event may have no field")]
                    let mut payload = $crate::__private::InlinePayload::<__USERTRACE_WORDS>::default();
                    $(payload.push::<$crate::__field_type!($type $($base)?)>($field);)*
                    return $crate::__private::record_words(&CALLSITE, &payload.words());
                }
                record_apart($($field),*)
            }

            #[inline(never)]
            #[allow(clippy::too_many_arguments, reason = "an event has as many fields as it needs")]
            fn record_apart(
                $($field: <$crate::__field_type!($type $($base)?) as $crate::__private::Field>::Argument<'_>),*
            ) -> $crate::event::Outcome {
                use $crate::__private::{Field, InlinePayload};

                if __USERTRACE_VARIABLE {
                    $crate::__private::record_variable(
                        &CALLSITE,
                        0usize $(.saturating_add(
                            <$crate::__field_type!($type $($base)?) as Field>::bound($field)
                        ))*,
                        |payload| {
                            $(<$crate::__field_type!($type $($base)?) as Field>::append($field, payload);)*
                        },
                        || record_long($($field),*),
                    )
                } else {
                    #[allow(unused_mut, reason = "an event may have no field")]
                    let mut payload = InlinePayload::<__USERTRACE_WORDS>::default();
                    $(payload.push::<$crate::__field_type!($type $($base)?)>($field);)*
                    $crate::__private::record(&CALLSITE, payload.words())
                }
            }

            #[cold]
            #[inline(never)]
            #[allow(clippy::too_many_arguments, reason = "an event has as many fields as it needs")]
            fn record_long(
                $($field: <$crate::__field_type!($type $($base)?) as $crate::__private::Field>::Argument<'_>),*
            ) -> $crate::event::Outcome {
                use $crate::__private::Field;

                let len = 0usize $(.saturating_add(
                    <$crate::__field_type!($type $($base)?) as Field>::size($field)
                ))*;
                $crate::__private::record_long(&CALLSITE, len, &|payload| {
                    $(<$crate::__field_type!($type $($base)?) as Field>::append($field, payload);)*
                })
            }
        }
    };
}

/// Writes an event that [`tracepoint!`](crate::tracepoint) declared, and returns an
/// [`Outcome`](crate::event::Outcome).
///
/// The arguments are evaluated only if a trace wants the event. They are in the order of the
/// fields, or in any order with the names of all fields:
///
/// ```
/// # usertrace::tracepoint! {
/// #     mod served { provider: "shop", name: "served", loglevel: Info, fields: { status: u16, path: str } }
/// # }
/// usertrace::event!(served, 200, "/");
/// usertrace::event!(served, path = "/", status = 200);
/// ```
///
/// ```compile_fail
/// # usertrace::tracepoint! {
/// #     mod served { provider: "shop", name: "served", loglevel: Info, fields: { status: u16, path: str } }
/// # }
/// usertrace::event!(served, path = "/");
/// ```
#[macro_export]
macro_rules! event {
    ($($module:ident)::+, $($field:ident = $value:expr),+ $(,)?) => {
        match $($module)::+::CALLSITE.wanted() {
            0 => $crate::event::Outcome::Off,
            mask => {
                $crate::__private::capture_ip(&$($module)::+::CALLSITE, mask);
                $($module)::+::Fields {
                    $($field: $value,)+
                    __usertrace: ::core::marker::PhantomData,
                }
                .record()
            }
        }
    };
    ($($module:ident)::+ $(, $argument:expr)* $(,)?) => {
        match $($module)::+::CALLSITE.wanted() {
            0 => $crate::event::Outcome::Off,
            mask => {
                $crate::__private::capture_ip(&$($module)::+::CALLSITE, mask);
                $($module)::+::record($($argument),*)
            }
        }
    };
}

/// Writes an event as [`event!`](crate::event!) does, on behalf of the code at another address: the
/// context `ip` has that address. This is for wrapper functions whose events are about their
/// callers.
#[macro_export]
macro_rules! event_at {
    ($ip:expr, $($module:ident)::+ $(, $argument:expr)* $(,)?) => {
        match $($module)::+::CALLSITE.wanted() {
            0 => $crate::event::Outcome::Off,
            mask => {
                $crate::__private::use_ip(&$($module)::+::CALLSITE, mask, $ip);
                $($module)::+::record($($argument),*)
            }
        }
    };
}

/// Declares an event where it is written, and writes it: a provider, a name, a format, and the
/// fields with their values. Returns an [`Outcome`](crate::event::Outcome).
///
/// The format is part of the event's description; nothing is formatted when the event is written.
/// It names fields in braces; a doubled brace stands for one. The log level is `Info`, unless
/// another [`Loglevel`](crate::Loglevel) is given first.
///
/// ```
/// fn copied(done: u32, path: &str) {
///     usertrace::marker!("copy", "progress", "{done}% of {path}", done: u32 = done, path: str = path);
///     usertrace::marker!(Debug, "copy", "cached", "{done}% were cached", done: u32 = done);
/// }
/// # copied(50, "/tmp/x");
/// ```
///
/// ```compile_fail
/// usertrace::marker!("copy", "progress", "{done}% of {path}", done: u32 = 50);
/// ```
#[macro_export]
macro_rules! marker {
    ($provider:literal, $($rest:tt)+) => {
        $crate::marker!(Info, $provider, $($rest)+)
    };
    (
        $loglevel:ident, $provider:literal, $name:literal, $format:literal
        $(, $field:ident: $type:tt $($base:ident $labels:tt)? = $value:expr)* $(,)?
    ) => {{
        $crate::tracepoint! {
            mod __usertrace_marker {
                provider: $provider,
                name: $name,
                loglevel: $loglevel,
                format: $format,
                fields: { $($field: $type $($base $labels)?),* },
            }
        }
        $crate::event!(__usertrace_marker $(, $value)*)
    }};
}

/// Maps the type of a field to a type that is a [`Field`](crate::event::Field).
#[doc(hidden)]
#[macro_export]
macro_rules! __field_type {
    (enum $base:tt) => {
        $crate::__number_type!($base)
    };
    (str) => {
        str
    };
    (bytes) => {
        [u8]
    };
    ([$element:tt; $len:expr]) => {
        [$crate::__number_type!($element); $len]
    };
    ([$element:tt]) => {
        [$crate::__number_type!($element)]
    };
    ($number:tt) => {
        $crate::__number_type!($number)
    };
    ($($other:tt)*) => {
        $crate::__no_type!($($other)*)
    };
}

/// Maps the type of a number to a type that is a `Number`.
#[doc(hidden)]
#[macro_export]
#[rustfmt::skip]
macro_rules! __number_type {
    (u8) => { u8 };
    (u16) => { u16 };
    (u32) => { u32 };
    (u64) => { u64 };
    (usize) => { usize };
    (i8) => { i8 };
    (i16) => { i16 };
    (i32) => { i32 };
    (i64) => { i64 };
    (isize) => { isize };
    (x8) => { $crate::__private::Hex<u8> };
    (x16) => { $crate::__private::Hex<u16> };
    (x32) => { $crate::__private::Hex<u32> };
    (x64) => { $crate::__private::Hex<u64> };
    (u16be) => { $crate::__private::Be<u16> };
    (u32be) => { $crate::__private::Be<u32> };
    (u64be) => { $crate::__private::Be<u64> };
    (i16be) => { $crate::__private::Be<i16> };
    (i32be) => { $crate::__private::Be<i32> };
    (i64be) => { $crate::__private::Be<i64> };
    (x16be) => { $crate::__private::Be<$crate::__private::Hex<u16>> };
    (x32be) => { $crate::__private::Be<$crate::__private::Hex<u32>> };
    (x64be) => { $crate::__private::Be<$crate::__private::Hex<u64>> };
    (f32) => { f32 };
    (f64) => { f64 };
    (bool) => { bool };
    (ptr) => { *const () };
    ($($other:tt)*) => { $crate::__no_type!($($other)*) };
}

/// Fails to compile, and lists the known types.
#[doc(hidden)]
#[macro_export]
macro_rules! __no_type {
    ($($other:tt)*) => {
        ::core::compile_error!(::core::concat!(
            "`", ::core::stringify!($($other)*), "` is not the type of a field. There are: u8 u16 u32 u64 usize, ",
            "i8 i16 i32 i64 isize, x8 x16 x32 x64 (hexadecimal), each but those of 8 bits and of size with `be` behind ",
            "it (network byte order), f32 f64, bool, ptr; of any of these, [T; N] and [T]; str, bytes; and of an ",
            "integer T, `enum T { Label = 0, \"other label\" = 1..=3 }`"
        ))
    };
}

/// Maps the labels of an enumeration to an array.
#[doc(hidden)]
#[macro_export]
macro_rules! __labels {
    () => {
        &[]
    };
    ({ $($label:tt = $first:literal $(..= $last:literal)?),+ $(,)? }) => {
        &[$($crate::__private::Label {
            name: $crate::__label!($label),
            first: $first,
            last: $crate::__last!($first $($last)?),
        }),+]
    };
    ($($other:tt)*) => {
        ::core::compile_error!(::core::concat!(
            "these are not the labels of an enumeration: `", ::core::stringify!($($other)*),
            "`; they are `{ Label = 0, \"other label\" = 1..=3 }`, with at least one, and numbers"
        ))
    };
}

/// Maps a label to its text.
#[doc(hidden)]
#[macro_export]
macro_rules! __label {
    ($label:ident) => {
        $crate::__private::strip_raw(::core::stringify!($label))
    };
    ($label:literal) => {
        $label
    };
}

/// The last value of a range.
#[doc(hidden)]
#[macro_export]
macro_rules! __last {
    ($first:literal) => {
        $first
    };
    ($first:literal $last:literal) => {
        $last
    };
}
