//! Compresses bytes, and encodes them as text for the page.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as STANDARD;

/// Compression level of `miniz_oxide`. Higher ones take much longer, and save little.
const LEVEL: u8 = 2;

/// Compresses bytes for `DecompressionStream("deflate-raw")`.
pub(crate) fn deflate(bytes: &[u8]) -> Vec<u8> {
    miniz_oxide::deflate::compress_to_vec(bytes, LEVEL)
}

/// Encodes bytes as text without HTML, for a browser's `atob`.
pub(crate) fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Compresses bytes as a file of gzip, without a name and a time, so that equal bytes make equal
/// files.
pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    // Magic, method, flags, time, extra flags, and an unknown system.
    let mut file = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
    file.extend_from_slice(&deflate(bytes));
    file.extend_from_slice(&crc32fast::hash(bytes).to_le_bytes());
    // Modulo 2^32, as the format wants it.
    file.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    file
}
