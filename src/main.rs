//! The program: calls [`sonobuoy::run`] and ends with its exit code; nothing else.

fn main() -> std::process::ExitCode {
    sonobuoy::run(std::env::args_os())
}
