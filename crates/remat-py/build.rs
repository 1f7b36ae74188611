//! With the feature `arena`, builds the allocator that is preloaded, for the wheel to hold beside the extension module.
//! A wheel is made of one library, and this one must not be that: it is loaded before Python is.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

const LIBRARY: &str = "libremat_alloc.so";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if env::var_os("CARGO_FEATURE_ARENA").is_some() {
        build_allocator();
    }
}

fn build_allocator() {
    for source in ["../remat-alloc", "../remat-core/src/pool"] {
        println!("cargo:rerun-if-changed={source}");
    }
    let variable = |name: &str| {
        PathBuf::from(env::var_os(name).unwrap_or_else(|| panic!("cargo sets {name}")))
    };
    let (out, target) = (variable("OUT_DIR"), variable("TARGET"));
    // A target folder of its own: that of this build is locked.
    let folder = out.join("arena");
    let built = Command::new(variable("CARGO"))
        .args(["build", "--quiet", "--release", "--package", "remat-alloc"])
        .args([
            "--config",
            "profile.release.strip=true",
            "--manifest-path",
            "../../Cargo.toml",
        ])
        .args([
            PathBuf::from("--target"),
            target.clone(),
            PathBuf::from("--target-dir"),
            folder.clone(),
        ])
        .status();
    assert!(
        built.is_ok_and(|status| status.success()),
        "the allocator was not built; see above"
    );
    let library = folder.join(target).join("release").join(LIBRARY);
    fs::copy(&library, out.join(LIBRARY))
        .unwrap_or_else(|error| panic!("{}: {error}", library.display()));
}
