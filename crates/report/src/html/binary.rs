//! Compresses bytes and encodes them as text for the page.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as STANDARD;

/// Compression level of `miniz_oxide`. Higher ones take much longer, and save little.
const LEVEL: u8 = 2;

/// Compresses bytes for `DecompressionStream("deflate-raw")`.
pub(super) fn deflate(bytes: &[u8]) -> Vec<u8> {
    miniz_oxide::deflate::compress_to_vec(bytes, LEVEL)
}

/// Encodes bytes as text without HTML, for a browser's `atob`.
pub(super) fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}
