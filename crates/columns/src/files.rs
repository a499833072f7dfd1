//! The files of an export, of which few are open at a time.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::ColumnsError;
use crate::file::OpenFile;
use crate::names::directory;
use crate::rows::Rows;
use crate::schema::{Layout, Raw};
use crate::split::Split;
use crate::time::date;

/// What the rows of a file have in common.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Partition {
    pub(crate) host: Option<Arc<str>>,
    /// Days since 1970.
    pub(crate) day: i64,
    pub(crate) event: Arc<str>,
    pub(crate) layout: Arc<Layout>,
}

impl Partition {
    /// Its directory.
    fn directory(&self) -> PathBuf {
        let host = directory("host", self.host.as_deref());
        let date = directory("date", Some(&date(self.day)));
        [host, date, directory("event", Some(&self.event))]
            .iter()
            .collect()
    }

    /// The same with columns for the bytes of texts in these fields. The rows are of this
    /// partition.
    fn with_bytes(&self, rows: &Rows, raw: &Raw) -> Self {
        let shape = rows.shapes.first();
        let layout = shape.map(|(shape, _)| Layout::of(&shape.fields, raw));
        Self {
            host: self.host.clone(),
            day: self.day,
            event: Arc::clone(&self.event),
            layout: layout.map_or_else(|| Arc::clone(&self.layout), Arc::new),
        }
    }

    fn create(&self, path: &Path) -> io::Result<OpenFile> {
        let metadata = [
            ("usertrace.host", self.host.as_deref().unwrap_or_default()),
            ("usertrace.event", &self.event),
        ];
        fs::create_dir_all(path.parent().unwrap_or(path))?;
        OpenFile::create(path, &self.layout.columns, &metadata)
    }
}

/// Limits of the files.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileLimits {
    /// How many are open at a time.
    pub(crate) open: usize,
    /// Bytes after which a file ends.
    pub(crate) len: usize,
    /// Groups of rows after which a file ends.
    pub(crate) groups: usize,
}

/// Writes groups of rows to files.
#[derive(Debug)]
pub(crate) struct Files {
    root: PathBuf,
    /// What the root is called after the export, for errors.
    shown: PathBuf,
    limits: FileLimits,
    /// The open files, each with the number of its last write.
    open: HashMap<Arc<Partition>, (OpenFile, u64)>,
    /// For partitions with texts that were not UTF-8: the fields that have them, and the partition
    /// with columns for their bytes.
    raw: HashMap<Arc<Partition>, (Raw, Arc<Partition>)>,
    created: u64,
    writes: u64,
}

impl Files {
    pub(crate) fn new(root: PathBuf, shown: PathBuf, limits: FileLimits) -> Self {
        Self {
            root,
            shown,
            limits,
            open: HashMap::new(),
            raw: HashMap::new(),
            created: 0,
            writes: 0,
        }
    }

    /// Writes a group of rows to the open file of its partition, or to a new one. Before a new one
    /// is opened, the file whose last write is the longest ago is completed, if too many are open.
    pub(crate) fn write(
        &mut self,
        partition: &Arc<Partition>,
        rows: &Rows,
    ) -> Result<(), ColumnsError> {
        let (mut raw, known) = match self.raw.get(partition) {
            Some((raw, with_bytes)) => (raw.clone(), Some(with_bytes)),
            None => (Raw::default(), None),
        };
        let before = raw.clone();
        let split = Split::new(rows, &partition.layout, &mut raw);
        let with_bytes = match known {
            _ if raw.is_empty() => Arc::clone(partition),
            Some(known) if raw == before => Arc::clone(known),
            _ => {
                let with_bytes = Arc::new(partition.with_bytes(rows, &raw));
                let known = (raw, Arc::clone(&with_bytes));
                self.raw.insert(Arc::clone(partition), known);
                with_bytes
            }
        };
        let partition = &with_bytes;
        let mut file = match self.open.remove(partition) {
            Some((file, _)) => file,
            None => {
                while self.open.len() >= self.limits.open.max(1) {
                    self.finish_oldest()?;
                }
                self.created += 1;
                let name = format!("part-{:06}.parquet", self.created);
                let path = self.root.join(partition.directory()).join(name);
                partition
                    .create(&path)
                    .map_err(|error| self.error(&path, error))?
            }
        };
        file.write(rows.len(), split.columns(&partition.layout))
            .map_err(|error| self.error(file.path(), error))?;
        if file.len() >= self.limits.len || file.groups() >= self.limits.groups {
            return self.finish_file(file);
        }
        self.writes += 1;
        self.open.insert(Arc::clone(partition), (file, self.writes));
        Ok(())
    }

    /// Completes all files. Returns how many there are.
    pub(crate) fn finish(mut self) -> Result<u64, ColumnsError> {
        while !self.open.is_empty() {
            self.finish_oldest()?;
        }
        Ok(self.created)
    }

    fn finish_oldest(&mut self) -> Result<(), ColumnsError> {
        let oldest = self.open.iter().min_by_key(|(_, (_, write))| *write);
        let Some(oldest) = oldest.map(|(partition, _)| Arc::clone(partition)) else {
            return Ok(());
        };
        match self.open.remove(&oldest) {
            Some((file, _)) => self.finish_file(file),
            None => Ok(()),
        }
    }

    fn finish_file(&self, file: OpenFile) -> Result<(), ColumnsError> {
        let path = file.path().to_owned();
        file.finish().map_err(|error| self.error(&path, error))
    }

    /// Names the file as it will be called after the export.
    fn error(&self, path: &Path, error: io::Error) -> ColumnsError {
        let name = path.strip_prefix(&self.root).unwrap_or(path);
        ColumnsError::write(&self.shown.join(name), error)
    }
}
