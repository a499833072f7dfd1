//! Link arguments of all libraries to preload.

fn main() {
    // A restartable sequence's descriptor must stay mapped for as long as a thread may point to it.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rerun-if-changed=../build.rs");
}
