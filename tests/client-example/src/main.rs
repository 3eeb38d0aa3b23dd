//! A plugin that reports by itself: sends progress and heartbeats, and submits the file or folder named by its
//! argument, or the reason why it is missing.

use std::path::Path;
use std::process::ExitCode;

use sonobuoy_client::protocol::Progress;
use sonobuoy_client::{Client, Error};

fn main() -> ExitCode {
    match report() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn report() -> Result<(), Error> {
    let client = Client::from_env()?;
    client.heartbeat()?;
    client.progress(&Progress {
        msg: "nearly there".into(),
        total: 2,
        completed: 1,
        ..Progress::default()
    })?;
    let submitted = match std::env::args().nth(1) {
        Some(path) if Path::new(&path).is_dir() => client.submit_directory(Path::new(&path))?,
        Some(path) => client.submit_file(Path::new(&path))?,
        None => client.submit_error("no result was named")?,
    };
    println!("{submitted:?}");
    Ok(())
}
