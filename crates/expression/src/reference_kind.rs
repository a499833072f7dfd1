//! Which kinds of values an expression refers to.

/// Where the value of a reference comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReferenceKind {
    /// A field of the event.
    Field,
    /// A context of the event or its stream: `$ctx.NAME`.
    Context,
    /// A context that the program defines: `$app.NAME`.
    Application,
}
