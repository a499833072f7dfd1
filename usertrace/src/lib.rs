//! User-space tracing into buffers that the kernel owns.
