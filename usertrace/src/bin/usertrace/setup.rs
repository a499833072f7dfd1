//! What a trace is to be like, as options of the commands that make one.

use usertrace::consumer::TraceSetup;

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Setup {
    /// Only these events: NAME or PROVIDER:NAME, * for any characters, ? for any one, ! in front for those that are not
    /// wanted; several with commas between them, of which the last that matches counts [default: all]
    #[arg(short, long, value_name = "PATTERNS", value_delimiter = ',')]
    event: Vec<String>,

    /// Full rings overwrite their oldest events: the trace has the last ones, whatever is read of it meanwhile
    #[arg(long)]
    flight: bool,

    /// Bytes in a sub-buffer, a power of two; k and M are understood [default: the kernel's]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    subbuf_size: Option<u32>,

    /// Sub-buffers in each ring, a power of two [default: the kernel's]
    #[arg(long, value_name = "COUNT")]
    subbuf_count: Option<u32>,

    /// What each event is to say besides its fields: vpid, vtid, procname, cpu_id, ip, cgroup_ns, ipc_ns, mnt_ns, net_ns,
    /// pid_ns, time_ns, user_ns, uts_ns, or app.NAME, which the program defines; several with commas between them
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    context: Vec<String>,
}

impl From<Setup> for TraceSetup {
    fn from(setup: Setup) -> Self {
        Self {
            events: setup.event,
            subbuf_size: setup.subbuf_size,
            subbuf_count: setup.subbuf_count,
            contexts: setup.context,
            flight: setup.flight,
        }
    }
}

/// A number of bytes.
fn size(text: &str) -> Result<u32, String> {
    let (digits, factor) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 1 << 10),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 1 << 20),
        _ => (text, 1),
    };
    let number: u32 = digits.parse().map_err(|_| "not a number".to_owned())?;
    number
        .checked_mul(factor)
        .ok_or_else(|| "too large".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!(size("4096"), Ok(4096));
        assert_eq!(size("256k"), Ok(256 << 10));
        assert_eq!(size("1M"), Ok(1 << 20));
        for bad in ["", "k", "-1", "4096M", "1G", "ü"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }
}
