//! `sonobuoy version`: the version of the program, and the supported clusters.

use super::cluster::ClusterFlags;
use super::flag::Filled as _;
use super::output::{self, DocumentForm};
use base::json::json;
use model::names::VERSION;

/// The oldest and the newest version of Kubernetes that a run accepts without a warning.
const KUBERNETES: [&str; 2] = ["1.17.0", "1.99.99"];

/// Print the version of this program
#[derive(clap::Args)]
pub(crate) struct VersionArgs {
    /// Print only the version
    #[arg(long)]
    short: bool,
    /// Form of the output
    #[arg(short, long, value_name = "WORD")]
    output: Option<DocumentForm>,
    #[command(flatten)]
    cluster: ClusterFlags,
}

/// Prints the version alone or all details.
pub(crate) fn run(args: &VersionArgs) {
    if args.short {
        output::line(VERSION);
        return;
    }
    let [oldest, newest] = KUBERNETES;
    let sha = option_env!("SONOBUOY_GIT_SHA").unwrap_or("unknown");
    if let Some(form) = args.output {
        let document = json!({
            "version": VERSION, "gitSHA": sha, "platform": platform(), "minimumKubeVersion": oldest,
            "maximumKubeVersion": newest,
        });
        output::print(&output::document(form, &document));
        return;
    }
    output::print(&format!(
        "Sonobuoy Version: {}\nMinimumKubeVersion: {oldest}\nMaximumKubeVersion: \
         {newest}\nGitSHA: {sha}\nGoVersion: none (written in Rust)\nPlatform: {}\n{}\n",
        VERSION,
        platform(),
        api_version(&args.cluster),
    ));
}

/// The line about the cluster. Only with `--kubeconfig` a cluster is queried, as in the original.
fn api_version(cluster: &ClusterFlags) -> String {
    if cluster.kubeconfig.filled().is_some() {
        match cluster.version() {
            Ok(version) => return format!("API Version:  {version}"),
            Err(error) => log::error!("{error:#}"),
        }
    }
    "API Version check skipped due to missing `--kubeconfig` or other error".into()
}

/// Operating system and architecture, in the notation of container images.
fn platform() -> String {
    let system = match std::env::consts::OS {
        "macos" => "darwin",
        other => other,
    };
    format!("{system}/{}", oci::architecture())
}
