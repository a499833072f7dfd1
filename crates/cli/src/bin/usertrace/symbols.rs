//! Options for the names of code addresses, shared by the commands that read traces.

use std::path::PathBuf;

use anyhow::bail;
use usertrace_symbols::Options;

use crate::output;

/// When code addresses are named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum When {
    /// If the trace knows the modules there.
    #[default]
    Auto,
    /// Not at all.
    Never,
}

/// Options for commands that name code addresses, if that is wanted.
#[derive(Debug, clap::Args)]
pub(crate) struct Symbols {
    /// Name the functions, files and lines at code addresses: auto, if the trace knows the modules
    /// there, or never
    #[arg(
        long,
        value_name = "WHEN",
        value_enum,
        default_value_t,
        hide_possible_values = true
    )]
    symbols: When,

    #[command(flatten)]
    files: DebugFiles,
}

/// Where debug files are.
#[derive(Debug, clap::Args)]
pub(crate) struct DebugFiles {
    /// Look for programs, libraries and debug files in DIR first: by build ID, by name, and by
    /// path, as in a copy of the file system that the program saw. Once for each DIR
    #[arg(long, value_name = "DIR")]
    debug_dir: Vec<PathBuf>,
}

impl Symbols {
    /// Where to look for symbols. None if addresses are not named.
    ///
    /// # Errors
    /// If a directory is none.
    pub(crate) fn options(&self) -> anyhow::Result<Option<Options>> {
        match self.symbols {
            When::Auto => self.files.options().map(Some),
            When::Never => Ok(None),
        }
    }
}

impl DebugFiles {
    /// Where to look for symbols.
    ///
    /// # Errors
    /// If a directory is none.
    pub(crate) fn options(&self) -> anyhow::Result<Options> {
        for path in &self.debug_dir {
            match path.metadata() {
                Ok(metadata) if metadata.is_dir() => {}
                Ok(_) => bail!("cannot use --debug-dir {path:?}: it is no directory"),
                Err(error) => bail!("cannot use --debug-dir {path:?}: {error}"),
            }
        }
        Ok(Options {
            debug_dirs: self.debug_dir.clone(),
            debuginfod: true,
        })
    }
}

/// Says what is to be said of files without symbols.
pub(crate) fn say(messages: impl IntoIterator<Item = String>) {
    messages.into_iter().for_each(output::say);
}
