//! The program: calls [`sonobuoy::cli::run`] and ends with its exit code; nothing else.

fn main() -> std::process::ExitCode {
    sonobuoy::cli::run(std::env::args_os())
}
