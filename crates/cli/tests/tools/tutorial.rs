//! The tutorial for programs in Rust: its programs are built, recorded and read as the page says.

use std::env;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use usertrace_testing::documents::{event_of, fenced};

fn repository() -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    path.canonicalize().unwrap()
}

/// The directory of a reader of the page, with the command in it.
///
/// The directory is not below the checkout, where `cargo new` would add the program to our
/// workspace.
struct Reader(tempfile::TempDir);

impl Reader {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let bin = directory.path().join("bin");
        fs::create_dir(&bin).unwrap();
        symlink(env!("CARGO_BIN_EXE_usertrace"), bin.join("usertrace")).unwrap();
        Self(directory)
    }

    /// The directory of the program.
    fn shop(&self) -> PathBuf {
        self.0.path().join("shop")
    }

    /// Types commands, and returns what they print. Crates come from those that were fetched for
    /// our workspace.
    fn types(&self, commands: &[&str]) -> String {
        let checkout = format!("'{}'/", repository().display());
        let text = commands.join("\n").replace("../usertrace/", &checkout);
        let path = env::var("PATH").unwrap();
        let path = format!("{}/bin:{path}", self.0.path().display());
        let shop = self.shop();
        let output = Command::new("sh")
            .args(["-euc", &text])
            .current_dir(if shop.exists() { &shop } else { self.0.path() })
            .env("PATH", path)
            .env("CARGO_NET_OFFLINE", "true")
            // These would move the program, or build all crates anew for another test.
            .env_remove("CARGO_TARGET_DIR")
            .env_remove("RUSTFLAGS")
            .env_remove("CARGO_ENCODED_RUSTFLAGS")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}: {}\n{said}", output.status);
        String::from_utf8(output.stdout).unwrap()
    }

    /// The same, as lines that can be compared.
    fn sees(&self, commands: &[&str]) -> Vec<String> {
        self.types(commands).lines().map(event_of).collect()
    }

    /// Gives the program the versions of our workspace. Cargo drops those that are not needed.
    fn lock(&self) {
        let lock = self.shop().join("Cargo.lock");
        fs::copy(repository().join("Cargo.lock"), lock).unwrap();
    }

    /// Gives the program what earlier runs have built.
    fn prepare(&self) {
        self.lock();
        let built = Path::new(env!("CARGO_TARGET_TMPDIR")).join("tutorial");
        fs::create_dir_all(&built).unwrap();
        symlink(built, self.shop().join("target")).unwrap();
        // Each run has another directory, and would leave another program.
        self.types(&["cargo clean --quiet --release --package shop"]);
    }

    fn writes_main(&self, text: &str) {
        fs::write(self.shop().join("src/main.rs"), text).unwrap();
    }
}

/// The line of our workspace for a crate.
fn dependency(name: &str) -> String {
    let manifest = fs::read_to_string(repository().join("Cargo.toml")).unwrap();
    let start = format!("{name} = ");
    let line = manifest.lines().find(|line| line.starts_with(&start));
    line.unwrap_or_else(|| panic!("the workspace does not use {name}"))
        .to_owned()
}

/// The program of the page writes the events that the page shows. Its lines for the layer of
/// `tracing` make a program, too.
///
/// Requirements: F3
#[test]
#[ignore = "full tier: builds the library and all that it needs as a release"]
fn the_programs_of_the_rust_tutorial_work() {
    let page = fs::read_to_string(repository().join("docs/tutorials/instrument-rust.md")).unwrap();
    let [new, build, record, choose, add] = &fenced(&page, "sh")[..] else {
        panic!("the page has other blocks of commands");
    };
    let [program, layer] = &fenced(&page, "rust")[..] else {
        panic!("the page has other programs");
    };
    let shown: Vec<_> = fenced(&page, "")[0].iter().copied().map(event_of).collect();

    let reader = Reader::new();
    reader.types(new);
    reader.prepare();
    assert_eq!(program[0], "// src/main.rs");
    reader.writes_main(&program.join("\n"));
    reader.types(build);
    assert_eq!(reader.sees(record), shown);
    let [attached, served @ .., _closing] = &shown[..] else {
        panic!("{shown:?}");
    };
    let chosen = reader.sees(choose);
    assert_eq!((&chosen[0], &chosen[1..]), (attached, served));
    assert_eq!(reader.sees(&["usertrace view some"]), served);

    let [add_layer, add_others] = &add[..] else {
        panic!("{add:?}");
    };
    reader.types(&[add_layer]);
    // With their default features, these need more crates than our workspace has.
    let others = add_others.strip_prefix("cargo add ").unwrap();
    let manifest = reader.shop().join("Cargo.toml");
    let mut text = fs::read_to_string(&manifest).unwrap();
    for name in others.split(' ').chain(["log"]) {
        text += &format!("{}\n", dependency(name));
    }
    fs::write(manifest, text).unwrap();
    reader.lock();
    reader.writes_main(&format!(
        "fn main() -> Result<(), Box<dyn std::error::Error>> {{\n{}\n\
         tracing::info!(bytes = 400, \"found\");\nlog::warn!(\"late\");\nOk(())\n}}\n",
        layer.join("\n")
    ));
    reader.types(build);
    let seen = reader.sees(&[
        "usertrace record -q -o layer -- target/release/shop",
        "usertrace view layer",
    ]);
    let [found, late] = &seen[..] else {
        panic!("{seen:?}");
    };
    assert!(
        found.starts_with("shop:main.rs-")
            && found.ends_with("{ span = 0, message = \"found\", bytes = 400 }"),
        "{found}"
    );
    assert!(
        late.starts_with("log:log_event: { span = 0, message = \"late\", log_target = \"shop\""),
        "{late}"
    );
}
