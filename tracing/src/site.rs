//! State of `tracing`'s call sites, and the table that finds it.

use std::ptr;

use tracing_core::Metadata;

use crate::event::Event;
use crate::list::List;
use crate::part::Part;

/// State of a call site.
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

/// Bits of an index into the table: of some thousand call sites, one or two share a bucket.
const BITS: u32 = 12;

static TABLE: [List<Site>; 1 << BITS] = [const { List::new() }; 1 << BITS];

/// Finds or adds the state of the call site with this metadata.
///
/// The key is the address of the metadata. Addresses of call sites may be shared, since these may
/// have size 0.
#[inline(always)]
pub(crate) fn site(metadata: &'static Metadata<'static>) -> &'static Site {
    let sites = list(metadata);
    match sites.iter().find(|site| has_metadata(site, metadata)) {
        Some(site) => site,
        None => add(sites, metadata),
    }
}

#[inline(always)]
fn list(metadata: &'static Metadata<'static>) -> &'static List<Site> {
    // Fibonacci hashing: all bits of the address influence the upper bits of the product.
    let hash = (ptr::from_ref(metadata).addr() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    &TABLE[(hash >> (u64::BITS - BITS)) as usize]
}

#[inline(always)]
fn has_metadata(site: &Site, metadata: &'static Metadata<'static>) -> bool {
    ptr::eq(site.metadata, metadata)
}

#[cold]
#[inline(never)]
fn add(sites: &List<Site>, metadata: &'static Metadata<'static>) -> &'static Site {
    let site = Site {
        metadata,
        parts: [const { Event::new() }; Part::COUNT],
    };
    sites.push(site, |one, other| has_metadata(one, other.metadata))
}
