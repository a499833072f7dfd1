//! The structures of `usertrace/lttng/abi.h`.

use std::ffi::{CStr, c_char, c_int};
use std::sync::atomic::{AtomicPtr, Ordering};

use usertrace::__private::Entry;
use usertrace::Callsite;

/// A label of an enumeration.
#[repr(C)]
pub(super) struct Label {
    text: *const c_char,
    first: i64,
    last: i64,
    first_is_negative: u8,
    last_is_negative: u8,
    is_automatic: u8,
}

/// The kind of a field: `enum usertrace_lttng_kind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Integer,
    Float,
    String,
    Enum,
    Array,
    Sequence,
    ArrayText,
    SequenceText,
}

/// A field of a class.
#[repr(C)]
pub(super) struct Field {
    name: *const c_char,
    labels: *const Label,
    /// Number of labels, or of an array's elements.
    pub(super) count: usize,
    kind: u8,
    pub(super) size: u8,
    is_signed: u8,
    is_hex: u8,
    is_network: u8,
}

/// Events with the same fields.
#[repr(C)]
pub(super) struct Class {
    fields: *const Field,
    count: usize,
    record: *mut (),
}

/// An event of a provider. Without a class, it only gives an event's log level.
#[repr(C)]
pub struct Probe {
    provider: *const c_char,
    name: *const c_char,
    class: *const Class,
    pub(super) level: c_int,
}

/// A tracepoint: its call site, and the function that writes its event.
#[repr(C)]
pub struct Tracepoint {
    callsite: Callsite,
    record: AtomicPtr<()>,
    provider: *const c_char,
    name: *const c_char,
    link: *const c_int,
}

/// A string of a provider's tables. The headers' macros define the strings, and
/// `usertrace_lttng_register` requires that the tables stay as long as the module.
fn text(text: *const c_char) -> &'static CStr {
    // SAFETY: the macros make C strings, which stay with the module.
    unsafe { CStr::from_ptr(text) }
}

impl Label {
    pub(super) fn text(&self) -> &'static CStr {
        text(self.text)
    }

    /// Its range of values; `None` if it follows the previous label.
    pub(super) fn values(&self) -> Option<(i128, i128)> {
        let value = |bits: i64, is_negative| {
            if is_negative == 0 {
                i128::from(bits.cast_unsigned())
            } else {
                bits.into()
            }
        };
        (self.is_automatic == 0).then(|| {
            (
                value(self.first, self.first_is_negative),
                value(self.last, self.last_is_negative),
            )
        })
    }
}

impl Field {
    pub(super) fn name(&self) -> &'static CStr {
        text(self.name)
    }

    pub(super) fn kind(&self) -> Option<Kind> {
        use Kind::{Array, ArrayText, Enum, Float, Integer, Sequence, SequenceText, String};
        let kinds = [
            Integer,
            Float,
            String,
            Enum,
            Array,
            Sequence,
            ArrayText,
            SequenceText,
        ];
        kinds.get(usize::from(self.kind)).copied()
    }

    pub(super) fn is_signed(&self) -> bool {
        self.is_signed != 0
    }

    pub(super) fn is_hex(&self) -> bool {
        self.is_hex != 0
    }

    pub(super) fn is_network(&self) -> bool {
        self.is_network != 0
    }

    /// The labels of an enumeration.
    pub(super) fn labels(&self) -> &[Label] {
        if self.labels.is_null() {
            return &[];
        }
        // SAFETY: the macro that made the table counted its elements.
        unsafe { std::slice::from_raw_parts(self.labels, self.count) }
    }
}

impl Class {
    pub(super) fn fields(&self) -> &[Field] {
        // SAFETY: the macro that made the table counted its elements.
        unsafe { std::slice::from_raw_parts(self.fields, self.count) }
    }
}

/// Names of provider and event.
pub(super) type Name = (&'static CStr, &'static CStr);

impl Probe {
    pub(super) fn name(&self) -> Name {
        (text(self.provider), text(self.name))
    }

    pub(super) fn class(&self) -> Option<&Class> {
        // SAFETY: the macros set a valid class or NULL.
        unsafe { self.class.as_ref() }
    }
}

impl Tracepoint {
    pub(super) fn name(&self) -> Name {
        (text(self.provider), text(self.name))
    }

    /// Whether it has a probe. A tracepoint that the linker merged with another library's has one
    /// if that library was registered before.
    pub(super) fn is_matched(&self) -> bool {
        !self.record.load(Ordering::Relaxed).is_null()
    }

    /// Sets the tracepoint's function and description.
    ///
    /// # Safety
    /// The tracepoint must not be matched, and no other thread may do this at the same time.
    pub(super) unsafe fn set(this: *mut Self, class: &Class, description: &'static str) -> Entry {
        // SAFETY: the caller guarantees that no other thread matches it. No thread reads its
        // description before it is registered.
        unsafe {
            Callsite::set_description(&raw mut (*this).callsite, description);
            // Pairs with the load in `lttng/tracepoint.h`.
            (*this).record.store(class.record, Ordering::Release);
            Entry::new(&(*this).callsite)
        }
    }
}
