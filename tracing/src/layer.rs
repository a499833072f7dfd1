//! The layer: what `tracing` tells of, and what is written of it.

use tracing_core::span::{Attributes, Id, Record};
use tracing_core::subscriber::Interest;
use tracing_core::{Event, Metadata, Subscriber};
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use crate::current::Current;
use crate::part::Part;
use crate::site::{Site, site};

/// Records spans and events. See the [crate](crate) for what becomes of them.
///
/// It never says that something is not enabled: that would be so for all layers of the subscriber.
#[derive(Debug)]
pub struct Layer {
    current: Current,
}

impl Layer {
    /// The layer. Traces are the kernel's, or the fallback's, so there is nothing to choose here.
    #[must_use]
    pub fn new() -> Self {
        Self {
            current: Current::new(),
        }
    }

    /// The id of the span that something is in: one that was named, or the current one, if that is
    /// asked for. 0 is none.
    #[inline(always)]
    fn inside<S>(&self, named: Option<&Id>, is_contextual: bool, ctx: &Context<'_, S>) -> u64
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        match named {
            Some(id) => id.into_u64(),
            None if is_contextual => self.current.get(|| {
                // Not one that this layer is not told of: nobody says when such a one is entered or
                // left.
                let span = ctx.lookup_current();
                span.map_or(0, |span| span.id().into_u64())
            }),
            None => 0,
        }
    }
}

impl Default for Layer {
    fn default() -> Self {
        Self::new()
    }
}

/// The callsite of a span, if the event is wanted that tells what happened to it.
fn wanted<S>(id: &Id, part: Part, ctx: &Context<'_, S>) -> Option<&'static Site>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let site = site(ctx.metadata(id)?);
    site.event(part).is_wanted().then_some(site)
}

/// Writes what happened to a span and has no fields.
fn happened<S>(id: &Id, part: Part, ctx: &Context<'_, S>)
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    if let Some(site) = wanted(id, part, ctx) {
        site.event(part)
            .write(site.metadata, part, &[id.into_u64()], |_| ());
    }
}

impl<S> tracing_subscriber::Layer<S> for Layer
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        // What can be done before the first event is.
        site(metadata);
        Interest::always()
    }

    fn on_event(&self, event: &Event<'_>, ctx: Context<'_, S>) {
        let site = site(event.metadata());
        let own = site.event(Part::Event);
        if own.is_wanted() {
            let span = self.inside(event.parent(), event.is_contextual(), &ctx);
            own.write(site.metadata, Part::Event, &[span], |visitor| {
                event.record(visitor);
            });
        }
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, ctx: Context<'_, S>) {
        let site = site(attributes.metadata());
        let new = site.event(Part::New);
        if new.is_wanted() {
            let parent = self.inside(attributes.parent(), attributes.is_contextual(), &ctx);
            let spans = [id.into_u64(), parent];
            new.write(site.metadata, Part::New, &spans, |visitor| {
                attributes.record(visitor);
            });
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, ctx: Context<'_, S>) {
        if let Some(site) = wanted(id, Part::Record, &ctx) {
            site.event(Part::Record).write(
                site.metadata,
                Part::Record,
                &[id.into_u64()],
                |visitor| values.record(visitor),
            );
        }
    }

    fn on_follows_from(&self, id: &Id, follows: &Id, ctx: Context<'_, S>) {
        if let Some(site) = wanted(id, Part::Follows, &ctx) {
            let spans = [id.into_u64(), follows.into_u64()];
            site.event(Part::Follows)
                .write(site.metadata, Part::Follows, &spans, |_| ());
        }
    }

    fn on_enter(&self, id: &Id, ctx: Context<'_, S>) {
        Current::changed();
        happened(id, Part::Enter, &ctx);
    }

    fn on_exit(&self, id: &Id, ctx: Context<'_, S>) {
        Current::changed();
        happened(id, Part::Exit, &ctx);
    }

    fn on_close(&self, id: Id, ctx: Context<'_, S>) {
        happened(&id, Part::Close, &ctx);
    }
}
