//! The header as C and C++ compilers see it, and programs built with it. Without a compiler there is nothing to test.

mod abi;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use abi::{library, shown};

fn header_folder() -> &'static str {
    env!("CARGO_MANIFEST_DIR")
}

fn has(compiler: &str) -> bool {
    let found = Command::new(compiler)
        .arg("--version")
        .output()
        .is_ok_and(|output| output.status.success());
    if !found {
        eprintln!("no {compiler} here: not tested");
    }
    found
}

/// Compiles a program against the header and the library, without a warning, and runs it.
fn build_and_run(compiler: &str, standard: &str, suffix: &str, source: &str, preload: bool) {
    if !has(compiler) {
        return;
    }
    let folder = scratch(suffix);
    let (code, program) = (
        folder.join(format!("program.{suffix}")),
        folder.join("program"),
    );
    fs::write(&code, source).unwrap();
    let compiled = Command::new(compiler)
        .args([
            standard,
            "-Wall",
            "-Wextra",
            "-Wpedantic",
            "-Werror",
            "-I",
            header_folder(),
            "-o",
        ])
        .args([program.as_path(), &code, &library()])
        .arg(format!(
            "-Wl,-rpath,{}",
            library().parent().unwrap().display()
        ))
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{}", shown(&compiled));
    let mut run = Command::new(&program);
    if preload {
        run.env("LD_PRELOAD", library());
    }
    let ended = run.output().unwrap();
    fs::remove_dir_all(&folder).unwrap();
    assert!(
        ended.status.success(),
        "{}: {}",
        ended.status,
        shown(&ended)
    );
}

fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("header-{name}-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    folder
}

#[test]
fn a_c_program_runs_in_an_arena() {
    let source = r#"
#define _POSIX_C_SOURCE 200809L
#include <remat_arena.h>
#include <errno.h>
#include <stdlib.h>

static void *kept;
static bool make_room(uint64_t bytes, void *context) {
    *(uint64_t *)context += bytes;
    free(kept);
    kept = NULL;
    return true;
}

int main(void) {
    struct remat_arena_statistics seen;
    uint64_t asked = 0;
    void *block;
    char message[100];
    if (remat_arena_read(&seen) != ENOENT || remat_arena_open(1 << 20, 0) != 0) return 1;
    remat_arena_on_exhausted(make_room, &asked);
    if (posix_memalign(&kept, 64, 600000) != 0 || posix_memalign(&block, 64, 600000) != 0) return 2;
    if (asked != 600000 || !remat_arena_owns(block) || remat_arena_size_of(block) != 600000) return 3;
    if (remat_arena_place(REMAT_ARENA_HIGH, REMAT_ARENA_BEST) != 0) return 4;
    if (remat_arena_read(&seen) != 0 || seen.exhaustions != 1 || seen.in_use != 600000) return 5;
    if (seen.fragmentation_mean != seen.fragmentation_max || seen.capacity != 1 << 20) return 6;
    if (remat_arena_base() != block || remat_arena_check(message, sizeof message) != 0) return 7;
    remat_arena_restart_peak();
    free(block);
    if (posix_memalign(&block, 64, 600000) != 0) return 8;
    free(block);
    if (remat_arena_span_of_temporaries() != 600000 || remat_arena_span_of_temporaries() != 0) return 9;
    remat_arena_close();
    return 0;
}
"#;
    build_and_run("cc", "-std=c11", "c", source, true);
}

#[test]
fn c_plus_plus_catches_that_a_device_is_out_of_memory() {
    let source = r#"
#include <remat_arena.h>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

static int device_of(int *device) { *device = 0; return 0; }
static int to_device(int) { return 0; }
static int take(void **memory, size_t bytes) { return posix_memalign(memory, 512, bytes); }
static int give(void *memory) { std::free(memory); return 0; }
static int create(void **event, unsigned) { static char any; *event = &any; return 0; }
static int any(void *) { return 0; }
static int record(void *, void *) { return 0; }
static int wait_for(void *, void *, unsigned) { return 0; }

int main() {
    const remat_cuda_functions host = {device_of, to_device, take, give, create, any, record, any, wait_for};
    remat_cuda_substitute(&host);
    if (remat_cuda_open(0, 1 << 20, 0) != 0) return 1;
    void *block = remat_cuda_malloc(1000, 0, nullptr);
    if (block == nullptr || remat_cuda_malloc(0, 0, nullptr) != nullptr) return 2;
    try {
        remat_cuda_malloc(1 << 20, 0, nullptr);
        return 3;
    } catch (const std::runtime_error &error) {
        const char *told = "CUDA out of memory: no room for 1048576 bytes in the arena of device 0: 1047552 of 1048576";
        if (!std::strstr(error.what(), told)) return 4;
    }
    remat_cuda_record_stream(block, nullptr);
    remat_cuda_free(block, 1000, 0, nullptr);
    remat_arena_statistics seen{};
    if (remat_cuda_read(0, &seen) != 0 || seen.blocks != 0 || seen.refusals != 1) return 5;
    remat_cuda_restart_peak(0);
    remat_cuda_on_exhausted(nullptr, nullptr);
    return remat_cuda_check(0, nullptr, 0);
}
"#;
    build_and_run("c++", "-std=c++17", "cc", source, false);
}

/// A function that is not in the header is one that nobody knows of, and one that is only there does not link.
#[test]
fn the_header_names_what_is_exported() {
    let header = fs::read_to_string(Path::new(header_folder()).join("remat_arena.h")).unwrap();
    let sources = ["src/exports.rs", "src/cuda/exports.rs"]
        .map(|file| fs::read_to_string(Path::new(header_folder()).join(file)).unwrap());
    let mut exported: Vec<&str> = sources
        .iter()
        .flat_map(|source| source.split("fn remat_").skip(1))
        .map(|rest| rest.split('(').next().unwrap())
        .collect();
    let mut declared: Vec<&str> = header
        .split("remat_")
        .skip(1)
        .filter_map(|rest| rest.split_once('('))
        .map(|(name, _)| name)
        .filter(|name| name.chars().all(|c| c.is_ascii_lowercase() || c == '_'))
        .collect();
    exported.sort_unstable();
    declared.sort_unstable();
    assert_eq!(declared, exported);
}
