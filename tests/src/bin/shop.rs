//! The example of programs that use `tracing` and `log`.

#[path = "../../../tracing/examples/shop.rs"]
mod example;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    example::main()
}
