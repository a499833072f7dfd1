//! A program with many events, whose descriptions take 16 KiB, and which waits for the end of its
//! input.

macro_rules! crowd {
    ($($module:ident $name:literal,)*) => {
        $(usertrace::tracepoint! {
            mod $module {
                provider: "crowd",
                name: $name,
                loglevel: Debug,
                fields: {
                    a_field_with_a_name_that_is_not_short_at_all_and_says_little: u64,
                    another_field_with_a_name_that_is_not_short_at_all_and_says_little: u64,
                    one_more_field_with_a_name_that_is_not_short_at_all_and_says_little: u64,
                    the_last_field_with_a_name_that_is_not_short_at_all_and_says_little: u64,
                },
            }
        })*

        fn write() {
            $(let _ = usertrace::event!($module, 1, 2, 3, 4);)*
        }
    };
}

crowd! {
    m00 "m00", m01 "m01", m02 "m02", m03 "m03", m04 "m04", m05 "m05",
    m06 "m06", m07 "m07", m08 "m08", m09 "m09", m10 "m10", m11 "m11",
    m12 "m12", m13 "m13", m14 "m14", m15 "m15", m16 "m16", m17 "m17",
    m18 "m18", m19 "m19", m20 "m20", m21 "m21", m22 "m22", m23 "m23",
    m24 "m24", m25 "m25", m26 "m26", m27 "m27", m28 "m28", m29 "m29",
    m30 "m30", m31 "m31", m32 "m32", m33 "m33", m34 "m34", m35 "m35",
    m36 "m36", m37 "m37", m38 "m38", m39 "m39", m40 "m40", m41 "m41",
    m42 "m42", m43 "m43", m44 "m44", m45 "m45", m46 "m46", m47 "m47",
}

fn main() {
    usertrace::init();
    write();
    let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
}
