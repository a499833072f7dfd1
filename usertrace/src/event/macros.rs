//! How events are declared and written.

/// Declares an event: a module with its [`Callsite`](crate::event::Callsite) and a function `record`.
///
/// See [`event`](mod@crate::event) for an example, and for the types that a field can have. Events are written by
/// [`event!`](crate::event!).
#[macro_export]
macro_rules! tracepoint {
    (
        $(#[$attribute:meta])*
        $visibility:vis mod $module:ident {
            provider: $provider:literal,
            name: $name:literal,
            loglevel: $loglevel:ident,
            fields: { $($field:ident: $type:ident),* $(,)? } $(,)?
        }
    ) => {
        $(#[$attribute])*
        #[allow(unreachable_pub, reason = "the module may be private")]
        $visibility mod $module {
            /// The static part of the event.
            pub static CALLSITE: $crate::event::Callsite = $crate::event::Callsite::new(
                $provider,
                $name,
                $crate::event::Loglevel::$loglevel,
                ::core::concat!(
                    $provider, ":", $name, " ", $crate::__loglevel!($loglevel),
                    $crate::__fields!($($field: $type),*)
                ),
            );

            #[used]
            #[unsafe(link_section = "usertrace_callsites")]
            static ENTRY: $crate::event::Entry = $crate::event::Entry::new(&CALLSITE);

            /// Writes the event into all traces that want it.
            #[inline(never)]
            #[allow(clippy::too_many_arguments, reason = "an event has as many fields as it needs")]
            pub fn record($($field: $crate::__field_type!($type)),*) -> $crate::event::Outcome {
                use $crate::event::{Field, Short};

                const VARIABLE: bool = false $(|| <$crate::__field_type!($type)>::SIZE == 0)*;
                const SIZE: usize = 0 $(+ <$crate::__field_type!($type)>::SIZE)*;
                const WORDS: usize = if VARIABLE { 0 } else { SIZE.div_ceil(8) };
                if VARIABLE {
                    $crate::event::record_variable(
                        &CALLSITE,
                        0usize $(.saturating_add(Field::bound($field)))*,
                        |payload| {
                            $(Field::append($field, payload);)*
                        },
                        || 0usize $(.saturating_add(Field::size($field)))*,
                        |payload| {
                            $(Field::append($field, payload);)*
                        },
                    )
                } else {
                    #[allow(unused_mut, reason = "an event may have no field")]
                    let mut payload = Short::<WORDS>::default();
                    $(payload.push($field);)*
                    $crate::event::record(&CALLSITE, payload.words())
                }
            }
        }
    };
}

/// Writes an event that [`tracepoint!`](crate::tracepoint) declared; its value is an
/// [`Outcome`](crate::event::Outcome).
///
/// The arguments are evaluated only if a trace wants the event.
#[macro_export]
macro_rules! event {
    ($($module:ident)::+ $(, $argument:expr)* $(,)?) => {
        if $($module)::+::CALLSITE.is_enabled() {
            $($module)::+::record($($argument),*)
        } else {
            $crate::event::Outcome::Off
        }
    };
}

/// The type of an argument.
#[doc(hidden)]
#[macro_export]
macro_rules! __field_type {
    (str) => {
        &str
    };
    (x8) => {
        u8
    };
    (x16) => {
        u16
    };
    (x32) => {
        u32
    };
    (x64) => {
        u64
    };
    ($type:ident) => {
        $type
    };
}

/// A type's name in metadata.
#[doc(hidden)]
#[macro_export]
macro_rules! __field_name {
    (i8) => {
        "s8"
    };
    (i16) => {
        "s16"
    };
    (i32) => {
        "s32"
    };
    (i64) => {
        "s64"
    };
    (u8) => {
        "u8"
    };
    (u16) => {
        "u16"
    };
    (u32) => {
        "u32"
    };
    (u64) => {
        "u64"
    };
    (x8) => {
        "x8"
    };
    (x16) => {
        "x16"
    };
    (x32) => {
        "x32"
    };
    (x64) => {
        "x64"
    };
    (f32) => {
        "f32"
    };
    (f64) => {
        "f64"
    };
    (bool) => {
        "bool"
    };
    (str) => {
        "str"
    };
}

/// The fields' part of the metadata.
#[doc(hidden)]
#[macro_export]
macro_rules! __fields {
    () => { "" };
    ($field:ident: $type:ident $(, $more_field:ident: $more_type:ident)*) => {
        ::core::concat!(
            " ", $crate::__field_name!($type), " ", ::core::stringify!($field),
            $(";", $crate::__field_name!($more_type), " ", ::core::stringify!($more_field),)*
        )
    };
}

/// A log level's number.
#[doc(hidden)]
#[macro_export]
macro_rules! __loglevel {
    (Emergency) => {
        0
    };
    (Alert) => {
        1
    };
    (Critical) => {
        2
    };
    (Error) => {
        3
    };
    (Warning) => {
        4
    };
    (Notice) => {
        5
    };
    (Info) => {
        6
    };
    (DebugSystem) => {
        7
    };
    (DebugProgram) => {
        8
    };
    (DebugProcess) => {
        9
    };
    (DebugModule) => {
        10
    };
    (DebugUnit) => {
        11
    };
    (DebugFunction) => {
        12
    };
    (DebugLine) => {
        13
    };
    (Debug) => {
        14
    };
}
