//! The `remat` binary.

fn main() {
    std::process::exit(remat_cli::main_with(std::env::args_os().collect()));
}
