//! What is known of a callsite of `tracing`, and how it is found.

use std::ptr;

use tracing_core::Metadata;

use crate::event::Event;
use crate::list::List;
use crate::part::Part;

/// What is known of a callsite.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) metadata: &'static Metadata<'static>,
    parts: [Event; Part::COUNT],
}

impl Site {
    #[inline(always)]
    pub(crate) fn event(&self, part: Part) -> &Event {
        &self.parts[part as usize]
    }
}

/// Bits of a place in the table: with some thousand callsites, one or two have the same place.
const BITS: u32 = 12;

static TABLE: [List<Site>; 1 << BITS] = [const { List::new() }; 1 << BITS];

/// What is known of the callsite with this metadata.
///
/// The metadata's address is the key, and not that of the callsite, which several may share: they
/// may be of size 0.
#[inline(always)]
pub(crate) fn site(metadata: &'static Metadata<'static>) -> &'static Site {
    let sites = list(metadata);
    match sites.iter().find(|site| is_of(site, metadata)) {
        Some(site) => site,
        None => add(sites, metadata),
    }
}

#[inline(always)]
fn list(metadata: &'static Metadata<'static>) -> &'static List<Site> {
    // Multiplied by the golden ratio, so that all bits of an address have their part in the upper
    // ones.
    let hash = (ptr::from_ref(metadata).addr() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    &TABLE[(hash >> (u64::BITS - BITS)) as usize]
}

#[inline(always)]
fn is_of(site: &Site, metadata: &'static Metadata<'static>) -> bool {
    ptr::eq(site.metadata, metadata)
}

#[cold]
#[inline(never)]
fn add(sites: &List<Site>, metadata: &'static Metadata<'static>) -> &'static Site {
    let site = Site {
        metadata,
        parts: [const { Event::new() }; Part::COUNT],
    };
    sites.push(site, |one, other| is_of(one, other.metadata))
}
