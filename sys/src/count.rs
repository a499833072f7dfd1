//! Counting without events: histogram buckets, and what people ask to be counted.

mod bucket;
mod request;

pub use self::bucket::{bucket_of, highest_of_bucket};
pub use self::request::{CountRequest, CountRequestError, CountValue, is_key, is_value};
