//! The layer: receives `tracing`'s notifications, and writes events.

use tracing_core::span::{Attributes, Id, Record};
use tracing_core::subscriber::Interest;
use tracing_core::{Event, Metadata, Subscriber};
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use crate::current::CurrentSpan;
use crate::part::Part;
use crate::site::{Site, site};

/// Records spans and events. See the [crate](crate) for their form in traces.
///
/// The layer never disables a call site, which would disable it for all layers of the subscriber.
#[derive(Debug)]
pub struct Layer {
    current: CurrentSpan,
}

impl Layer {
    /// Creates the layer. It has no settings, as traces are configured in the kernel or in the
    /// fallback.
    #[must_use]
    pub fn new() -> Self {
        Self {
            current: CurrentSpan::new(),
        }
    }

    /// The id of the parent span: the named one, or the current one if `is_contextual`. 0 is none.
    #[inline(always)]
    fn parent<S>(&self, named: Option<&Id>, is_contextual: bool, ctx: &Context<'_, S>) -> u64
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        match named {
            Some(id) => id.into_u64(),
            None if is_contextual => self.current.get(|| {
                // Skip spans that are filtered from this layer: it gets no notification when they
                // are entered or left.
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

/// The site of a span, if a trace wants this event of it.
fn wanted_site<S>(id: &Id, part: Part, ctx: &Context<'_, S>) -> Option<&'static Site>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let site = site(ctx.metadata(id)?);
    site.event(part).is_wanted().then_some(site)
}

/// Writes an event of a span that has no fields.
fn write_span_event<S>(id: &Id, part: Part, ctx: &Context<'_, S>)
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    if let Some(site) = wanted_site(id, part, ctx) {
        site.event(part)
            .write(site.metadata, part, &[id.into_u64()], |_| ());
    }
}

impl<S> tracing_subscriber::Layer<S> for Layer
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        // Prepare the site before its first event.
        site(metadata);
        Interest::always()
    }

    fn on_event(&self, event: &Event<'_>, ctx: Context<'_, S>) {
        let site = site(event.metadata());
        let own = site.event(Part::Event);
        if own.is_wanted() {
            let span = self.parent(event.parent(), event.is_contextual(), &ctx);
            own.write(site.metadata, Part::Event, &[span], |visitor| {
                event.record(visitor);
            });
        }
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, ctx: Context<'_, S>) {
        let site = site(attributes.metadata());
        let new = site.event(Part::New);
        if new.is_wanted() {
            let parent = self.parent(attributes.parent(), attributes.is_contextual(), &ctx);
            let spans = [id.into_u64(), parent];
            new.write(site.metadata, Part::New, &spans, |visitor| {
                attributes.record(visitor);
            });
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, ctx: Context<'_, S>) {
        if let Some(site) = wanted_site(id, Part::Record, &ctx) {
            site.event(Part::Record).write(
                site.metadata,
                Part::Record,
                &[id.into_u64()],
                |visitor| values.record(visitor),
            );
        }
    }

    fn on_follows_from(&self, id: &Id, follows: &Id, ctx: Context<'_, S>) {
        if let Some(site) = wanted_site(id, Part::Follows, &ctx) {
            let spans = [id.into_u64(), follows.into_u64()];
            site.event(Part::Follows)
                .write(site.metadata, Part::Follows, &spans, |_| ());
        }
    }

    fn on_enter(&self, id: &Id, ctx: Context<'_, S>) {
        CurrentSpan::clear();
        write_span_event(id, Part::Enter, &ctx);
    }

    fn on_exit(&self, id: &Id, ctx: Context<'_, S>) {
        CurrentSpan::clear();
        write_span_event(id, Part::Exit, &ctx);
    }

    fn on_close(&self, id: Id, ctx: Context<'_, S>) {
        write_span_event(&id, Part::Close, &ctx);
    }
}
