//! Bytes made smaller, and made text: what the page takes apart again.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as STANDARD;

/// How much `miniz_oxide` tries: more makes the page little smaller, and takes much longer.
const LEVEL: u8 = 2;

/// The same bytes in fewer ones, as `DecompressionStream("deflate-raw")` reads them.
pub(super) fn deflate(bytes: &[u8]) -> Vec<u8> {
    miniz_oxide::deflate::compress_to_vec(bytes, LEVEL)
}

/// Bytes as text that no HTML is in, as a browser's `atob` takes it.
pub(super) fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}
