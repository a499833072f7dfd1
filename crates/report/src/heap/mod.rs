//! Follows the memory that programs have in use, from the events of the C library's allocator.

mod heap_use;
mod inherited;
mod live;

pub use heap_use::HeapUse;
pub use live::{Change, Heap, InUse, Peak, StackUse};
