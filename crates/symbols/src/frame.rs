//! Frames of a call stack.

/// A function that was executing at an address, or one that was inlined there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Frame {
    /// Name of the function, demangled and printable. If it is unknown, `MODULE+0xOFFSET` or
    /// `0xADDRESS`.
    pub function: String,
    /// Path of the source file as the compiler recorded it, printable.
    pub file: Option<String>,
    /// The line in it.
    pub line: Option<u32>,
    /// The function was inlined into that of the next frame.
    pub is_inlined: bool,
    /// The function has no name.
    pub is_unknown: bool,
}

impl Frame {
    /// A function without a name: `MODULE+0xOFFSET`, or `0xADDRESS`.
    #[must_use]
    pub fn unknown(function: String) -> Self {
        Self {
            function,
            is_unknown: true,
            ..Self::default()
        }
    }

    /// Memory that it takes, in bytes.
    #[must_use]
    pub fn memory(&self) -> usize {
        size_of::<Self>() + self.function.len() + self.file.as_ref().map_or(0, String::len)
    }

    /// `FILE:LINE`, or `FILE` if the line is unknown.
    #[must_use]
    pub fn place(&self) -> Option<String> {
        let file = self.file.as_deref()?;
        Some(match self.line {
            Some(line) => format!("{file}:{line}"),
            None => file.to_owned(),
        })
    }
}

/// `FUNCTION (FILE:LINE)`, as far as it is known. With `{:#}`, ` [inlined]` follows if it is.
impl std::fmt::Display for Frame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.function)?;
        if let Some(place) = self.place() {
            write!(f, " ({place})")?;
        }
        match f.alternate() && self.is_inlined {
            true => f.write_str(" [inlined]"),
            false => Ok(()),
        }
    }
}
