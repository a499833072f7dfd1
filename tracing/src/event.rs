//! Events that are declared when their values are known: `tracing` gives the names of fields in
//! advance, but not their types.

use tracing_core::Metadata;
use tracing_core::field::Visit;
use usertrace::__private::{Scratch, declare};
use usertrace::Callsite;

use crate::list::List;
use crate::names;
use crate::part::Part;
use crate::text::Text;
use crate::values::{Type, Values};

/// Limit of an event's layouts: each takes memory, and an id in each trace, until the program ends.
const MAX_LAYOUTS: usize = 16;

/// An event, in each layout that was seen.
#[derive(Debug)]
pub(crate) struct Event(List<Layout>);

#[derive(Debug)]
struct Layout {
    /// `None`: all fields as one text.
    types: Option<Box<[Type]>>,
    /// `None`: its description would be too long.
    callsite: Option<&'static Callsite>,
}

impl Event {
    pub(crate) const fn new() -> Self {
        Self(List::new())
    }

    /// Whether a trace wants the event, or that is unknown yet. All layouts have the same name and
    /// log level, so the first represents all.
    #[inline(always)]
    pub(crate) fn is_wanted(&self) -> bool {
        let first = self.0.first().and_then(|layout| layout.callsite);
        first.is_none_or(Callsite::is_enabled)
    }

    /// Writes the event: ids of spans, as its part has them, and fields.
    #[inline(always)]
    pub(crate) fn write(
        &self,
        metadata: &Metadata<'_>,
        part: Part,
        spans: &[u64],
        visit: impl Fn(&mut dyn Visit),
    ) {
        let mut room = Scratch::uninit();
        let mut values = Values::new(&mut room, spans);
        visit(&mut values);
        let layout = values
            .types()
            .and_then(|types| self.layout(metadata, part, Some(types)));
        match layout {
            Some(callsite) => values.record(callsite),
            None => self.write_text(metadata, part, spans, &visit),
        }
    }

    /// Writes the event with its fields as one text.
    #[cold]
    #[inline(never)]
    fn write_text(
        &self,
        metadata: &Metadata<'_>,
        part: Part,
        spans: &[u64],
        visit: &dyn Fn(&mut dyn Visit),
    ) {
        let mut text = Text::default();
        visit(&mut text);
        if let Some(callsite) = self.layout(metadata, part, None) {
            let mut room = Scratch::uninit();
            let mut values = Values::new(&mut room, spans);
            values.push::<str>(text.as_str());
            values.record(callsite);
        }
    }

    /// The call site of a layout; `None` if it cannot be declared.
    #[inline(always)]
    fn layout(
        &self,
        metadata: &Metadata<'_>,
        part: Part,
        types: Option<&[Type]>,
    ) -> Option<&'static Callsite> {
        let found = self
            .0
            .iter()
            .find(|layout| layout.types.as_deref() == types);
        match found {
            Some(layout) => layout.callsite,
            None => self.declare(metadata, part, types),
        }
    }

    #[cold]
    #[inline(never)]
    fn declare(
        &self,
        metadata: &Metadata<'_>,
        part: Part,
        types: Option<&[Type]>,
    ) -> Option<&'static Callsite> {
        if types.is_some() && self.0.iter().count() >= MAX_LAYOUTS {
            return None;
        }
        // Two threads may both declare it; one of the call sites is unused then.
        let layout = Layout {
            types: types.map(Box::from),
            callsite: declare(&description(metadata, part, types)).ok(),
        };
        let same = |one: &Layout, other: &Layout| one.types == other.types;
        self.0.push(layout, same).callsite
    }
}

fn description(metadata: &Metadata<'_>, part: Part, types: Option<&[Type]>) -> String {
    let spans = part.spans().iter().map(|span| format!("u64 {span}"));
    let mut fields: Vec<String> = spans.collect();
    match types {
        Some(types) => fields.extend(types.iter().map(|field| {
            let name = metadata.fields().iter().nth(field.index());
            let name = name.map_or_else(String::new, |name| names::field(name.name()));
            format!("{} {name}", field.name())
        })),
        None => fields.push("str fields".to_owned()),
    }
    format!("{} {}", names::head(metadata, part), fields.join(";"))
}
