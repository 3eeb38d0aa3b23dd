//! A plugin that reports by itself: it tells its progress, says that it is alive, and submits the file or folder that
//! its argument names, or why there is none.

use std::path::Path;
use std::process::ExitCode;

use sonobuoy_client::{Access, Client, Error};
use sonobuoy_client::protocol::{Progress, ResultId};

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
    let plugin = std::env::var("RESULT_TYPE").unwrap_or_default();
    let client = Client::new(&Access::from_env()?, ResultId::global(plugin))?;
    client.heartbeat()?;
    client.progress(&Progress { msg: "nearly there".into(), total: 2, completed: 1, ..Progress::default() })?;
    let submitted = match std::env::args().nth(1) {
        Some(path) if Path::new(&path).is_dir() => client.submit_directory(Path::new(&path))?,
        Some(path) => client.submit_file(Path::new(&path))?,
        None => client.submit_error("no result was named")?,
    };
    println!("{submitted:?}");
    Ok(())
}
