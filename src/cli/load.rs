//! `run --load`: brings Sonobuoy's image to nodes without a registry for it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use super::cluster::ClusterFlags;
use super::flag::Filled as _;
use crate::deploy::load;
use base::at::At as _;
use base::{small, temp};
use kube::{Client, Config};
use oci::{self, Reference, Store};

/// The value of `--load` without an archive.
pub(super) const DEFAULT_ARCHIVE: &str = "default";
/// The usual places of the archive: beside the program, and where `make image` writes it.
const ARCHIVE_NAME: &str = "sonobuoy-image.tar";
/// Maximum size of the archive.
const MAX_ARCHIVE_BYTES: u64 = 256 << 20;
/// Tools of clusters on one machine: the beginning of their contexts, the program, and the words
/// after it; `A` is the archive, `C` the cluster.
const TOOLS: [(&str, &str, &[&str]); 3] = [
    (
        "kind-",
        "kind",
        &["load", "image-archive", "A", "--name", "C"],
    ),
    ("k3d-", "k3d", &["image", "import", "A", "--cluster", "C"]),
    (
        "minikube",
        "minikube",
        &["image", "load", "A", "--profile", "minikubeC"],
    ),
];

/// How Sonobuoy's image gets into the nodes
#[derive(Clone, clap::Args)]
pub(crate) struct LoadFlags {
    /// First load Sonobuoy's image into the nodes, through kind, k3d, minikube or, with
    /// --load-with, a privileged pod per node; without a value, the archive next to this program
    /// or in `target`
    #[arg(
        long,
        value_name = "ARCHIVE",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = DEFAULT_ARCHIVE,
        help_heading = "Images",
        hide_short_help = true
    )]
    pub load: Option<String>,
    /// With --load: image with a shell for the privileged pods that load Sonobuoy's, best by its
    /// digest; required unless the cluster is one of kind, k3d or minikube
    #[arg(
        long,
        value_name = "IMAGE",
        help_heading = "Images",
        hide_short_help = true
    )]
    pub load_with: Option<String>,
}

/// Loads `image` unless every node has it, and reports what was done.
pub(super) fn load_image(
    flags: &LoadFlags,
    cluster: &ClusterFlags,
    client: &Client,
    image: &str,
) -> Result<()> {
    let loader = flags
        .load_with
        .filled()
        .map(Reference::parse)
        .transpose()
        .context("--load-with")?;
    if load::is_everywhere(client, image).unwrap_or(false) {
        log::info!("every node has the image {image} already; nothing was loaded");
        return Ok(());
    }
    let archive = find_archive(flags.load.filled())?;
    check_archive(&archive, image)?;
    let context = Config::context(&cluster.options()?).unwrap_or_default();
    for (prefix, program, words) in TOOLS {
        let Some(name) = context.strip_prefix(prefix) else {
            continue;
        };
        let word = |word: &&str| match *word {
            "A" => archive.display().to_string(),
            word => word.replace('C', name),
        };
        let words: Vec<_> = words.iter().map(word).collect();
        let output = Command::new(program)
            .args(&words)
            .output()
            .with_context(|| {
                format!("--load: the context `{context}` needs the program `{program}`")
            })?;
        let call = words.join(" ");
        let errors = String::from_utf8_lossy(&output.stderr);
        let errors = base::visible::line(errors.trim());
        ensure!(
            output.status.success(),
            "`{program} {call}` failed: {errors}"
        );
        log::info!("`{program} {call}` loaded {image} into the nodes");
        return Ok(());
    }
    let loader = loader.with_context(|| {
        format!(
            "--load: `{context}` is not a context of kind, k3d or minikube, so a privileged pod \
             on each node has to load {image}: name an image with a shell that you trust as root \
             on every node, best by its digest, with `--load-with \
             registry.k8s.io/e2e-test-images/busybox@sha256:…`; or load `{}` on each node \
             yourself, or push it to a registry (docs/install.md)",
            archive.display()
        )
    })?;
    let bytes = small::read(&archive, MAX_ARCHIVE_BYTES).at("cannot read", &archive)?;
    let count = load::load(client, &bytes, &loader).with_context(|| {
        format!(
            "--load: {image} is not in all nodes; load `{}` with the tools of the cluster, or \
             push it to a registry",
            archive.display()
        )
    })?;
    log::info!(
        "a privileged pod on each of {count} nodes loaded {image} from `{}`",
        archive.display()
    );
    Ok(())
}

/// The archive to load.
fn find_archive(flag: Option<&str>) -> Result<PathBuf> {
    let named = flag
        .filter(|name| *name != DEFAULT_ARCHIVE)
        .map(PathBuf::from);
    named.or_else(usual_archive).context(
        "--load: there is no `sonobuoy-image.tar` beside this program or in `target`; `make \
         image` builds it, kits and releases have it; name it with --load=ARCHIVE",
    )
}

/// The archive of Sonobuoy's image in a usual place.
pub(super) fn usual_archive() -> Option<PathBuf> {
    let beside = std::env::current_exe()
        .ok()
        .map(|program| program.with_file_name(ARCHIVE_NAME));
    beside
        .into_iter()
        .chain([Path::new("target").join(ARCHIVE_NAME)])
        .find(|path| path.exists())
}

/// Checks that the archive has the image by this name.
fn check_archive(archive: &Path, image: &str) -> Result<()> {
    let work = temp::Folder::new()?;
    let stored = oci::read_archive(archive, &Store::open(&work)?)?;
    let names: Vec<_> = stored
        .iter()
        .map(|stored| stored.name.to_string())
        .collect();
    if names.iter().any(|name| name == image) {
        return Ok(());
    }
    match &names[..] {
        [] => bail!("`{}` has no image", archive.display()),
        names => bail!(
            "--load: `{}` has {}, and the run uses {image}; add --sonobuoy-image {}",
            archive.display(),
            names.join(", "),
            names[0]
        ),
    }
}
