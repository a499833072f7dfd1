//! Finds duplicate streams, for example if a trace was copied beside itself.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use crate::ReadError;
use crate::merged_stream::MergedStream;
use crate::trace::Trace;

/// Bytes to compare of each stream. They include the first packet's header, which has its start
/// time.
const BEGINNING: u64 = 4096;

/// Removes streams of `found` that are in `known`, or twice in `found`. Duplicates have the same
/// file name, belong to traces with the same UUID, and begin with the same bytes. Of two new ones,
/// the longer one stays. Returns the removed ones as errors.
pub(super) fn drop_duplicates(
    traces: &[Trace],
    known: &[MergedStream],
    found: Vec<MergedStream>,
) -> (Vec<MergedStream>, Vec<ReadError>) {
    let mut with_uuid: HashMap<[u8; 16], u32> = HashMap::new();
    for trace in traces {
        *with_uuid.entry(trace.metadata().uuid()).or_default() += 1;
    }
    if found.is_empty() || with_uuid.len() == traces.len() {
        return (found, Vec::new());
    }
    let key = |merged: &MergedStream| -> Option<([u8; 16], OsString)> {
        let uuid = traces.get(merged.stream.trace)?.metadata().uuid();
        let name = merged.stream.path.file_name()?.to_owned();
        (with_uuid.get(&uuid) > Some(&1)).then_some((uuid, name))
    };
    let mut first: HashMap<_, Vec<(PathBuf, Option<usize>)>> = HashMap::new();
    for merged in known {
        if let Some(key) = key(merged) {
            let path = merged.stream.path.clone();
            first.entry(key).or_default().push((path, None));
        }
    }
    let (mut kept, mut duplicates) = (Vec::<MergedStream>::new(), Vec::new());
    for mut merged in found {
        let Some(key) = key(&merged) else {
            kept.push(merged);
            continue;
        };
        let same = first.entry(key).or_default();
        let path = &merged.stream.path;
        let other = same.iter_mut().find(|(other, _)| is_same(other, path));
        let Some((other, at)) = other else {
            same.push((path.clone(), Some(kept.len())));
            kept.push(merged);
            continue;
        };
        if let Some(before) = at.and_then(|at| kept.get_mut(at))
            && before.stream.len < merged.stream.len
        {
            std::mem::swap(before, &mut merged);
            other.clone_from(&before.stream.path);
        }
        duplicates.push((directory(&merged.stream.path), directory(other)));
    }
    duplicates.dedup();
    let duplicates = duplicates
        .into_iter()
        .map(|(path, of)| ReadError::Duplicate { path, of });
    (kept, duplicates.collect())
}

fn directory(path: &Path) -> PathBuf {
    path.parent().unwrap_or(path).to_owned()
}

/// Whether both files begin with the same bytes.
fn is_same(one: &Path, other: &Path) -> bool {
    let beginning = |path| -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        crate::file::open(path)?
            .take(BEGINNING)
            .read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    match (beginning(one), beginning(other)) {
        (Ok(one), Ok(other)) => {
            let len = one.len().min(other.len());
            len > 0 && one[..len] == other[..len]
        }
        // Reading the stream reports the error later.
        _ => false,
    }
}
