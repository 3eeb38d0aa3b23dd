//! The flags that `run`, `doctor`, `wait` and `gen` share, so that their command lines are
//! interchangeable word for word.
//!
//! Declares them; their meaning is in `run_plan`. Defaults of settings are defined in the
//! configuration alone: flags with defaults would hide the values of a configuration file.

use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Result, anyhow};
use clap::Arg;
use clap::builder::{StringValueParser, TypedValueParser, ValueParser};
use serde::Serialize;
use serde_json::Value;

use super::cluster::{ClusterFlags, CredentialsFlag, RunAccess};
use super::file::read_text;
use super::flag::{
    Filled, Variation, Varied, parse_bool, parse_minutes, parse_regex, parse_seconds,
};
use super::flag::{parse_version, within, words};
use super::output::ProgressForm;
use base::json::json;
use kube::{Method, Object as _, Request};
use model::config::{self, IdentityMode, MAX_ATTEMPTS, Redaction};
use model::plugin::focus::{self, Mode};

/// More parts would load a cluster more than the tests do.
const MAX_PARTS: i64 = 20;
/// Where the pods of the cluster's name service usually are.
pub(crate) const DNS_NAMESPACE: &str = "kube-system";
/// Their usual labels.
pub(crate) const DNS_POD_LABELS: [&str; 2] = ["k8s-app=kube-dns", "k8s-app=coredns"];
/// The help of `--kubernetes-version`.
pub(crate) const KUBERNETES_VERSION_HELP: &str = "Kubernetes version of the images: v1.2.3; `auto` \
                                                  asks the cluster, `ignore` leaves it open, \
                                                  `latest` is the newest build";
/// The help of `--plugin-env`.
pub(crate) const PLUGIN_ENV_HELP: &str =
    "Environment variable of a plugin; an empty value removes it";

/// A value, and its place among the values of the command line: of several flags with one effect,
/// the last one counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed<T> {
    /// Larger than that of every value before.
    pub place: usize,
    pub value: T,
}

/// A parser that also records the place. Values are parsed in the order of the command line.
fn placed<P>(parser: P) -> ValueParser
where
    P: TypedValueParser + 'static,
    P::Value: Clone + Send + Sync + 'static,
{
    static NEXT_PLACE: AtomicUsize = AtomicUsize::new(0);
    ValueParser::new(parser.map(|value| Placed {
        place: NEXT_PLACE.fetch_add(1, Ordering::Relaxed),
        value,
    }))
}

pub(crate) fn placed_text() -> ValueParser {
    placed(StringValueParser::new())
}

impl Filled for Option<Placed<String>> {
    fn filled(&self) -> Option<&str> {
        let text = self.as_ref().map(|placed| placed.value.as_str());
        text.filter(|text| !text.is_empty())
    }
}

/// A flag that overrides a setting of the configuration file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    /// The flag, without hyphens.
    pub flag: &'static str,
    /// The path of the setting in the file.
    pub path: &'static str,
}

/// A setting that a flag overrides.
pub(crate) struct Override {
    pub setting: &'static Setting,
    pub place: usize,
    pub value: Value,
}

impl Setting {
    const fn new(flag: &'static str, path: &'static str) -> Self {
        Self { flag, path }
    }

    /// The value of the flag, unless it is absent or empty.
    fn overridden<T: Serialize>(&'static self, flag: &Option<Placed<T>>) -> Option<Override> {
        let flag = flag.as_ref()?;
        let value = json!(flag.value);
        (value != "").then_some(Override {
            setting: self,
            place: flag.place,
            value,
        })
    }

    /// The setting in the standard configuration.
    pub(crate) fn standard(&self) -> Option<Value> {
        let standard = json!(config::Run::standard());
        standard.pointer(&format!("/{}", self.path)).cloned()
    }

    /// The help of the flag, with the default of the setting if it is worth mentioning.
    fn help(&self, text: &str) -> String {
        let default = match self.standard().unwrap_or_default() {
            Value::String(default) => default,
            default => default.to_string(),
        };
        match default.as_str() {
            "" | "false" | "null" => text.to_owned(),
            default => format!("{text} [default: {default}]"),
        }
    }
}

static NAMESPACE: Setting = Setting::new("namespace", "Namespace");
static SONOBUOY_IMAGE: Setting = Setting::new("sonobuoy-image", "WorkerImage");
pub(crate) static PULL_POLICY: Setting = Setting::new("image-pull-policy", "ImagePullPolicy");
static FORCE_PULL_POLICY: Setting = Setting::new("force-image-pull-policy", "ForceImagePullPolicy");
static PULL_SECRET: Setting = Setting::new("image-pull-secret", "ImagePullSecrets");
static TIMEOUT: Setting = Setting::new("timeout", "Server/timeoutseconds");
static AGGREGATOR_PERMISSIONS: Setting =
    Setting::new("aggregator-permissions", "AggregatorPermissions");
pub(crate) static SECURITY_CONTEXT_MODE: Setting =
    Setting::new("security-context-mode", "SecurityContextMode");
static SERVICE_ACCOUNT_NAME: Setting = Setting::new("service-account-name", "ServiceAccountName");
static EXISTING_SERVICE_ACCOUNT: Setting =
    Setting::new("existing-service-account", "ExistingServiceAccount");
static PSA_ENFORCE_LEVEL: Setting =
    Setting::new("namespace-psa-enforce-level", "NamespacePSAEnforceLevel");
static DOCKER_CONFIG_FILE: Setting = Setting::new("e2e-docker-config-file", "E2EDockerConfigFile");
static RETRY_FAILED: Setting = Setting::new("retry-failed", "RetryFailed");
static IDENTITY: Setting = Setting::new("identity", "Identity");
static MARK_NODES: Setting = Setting::new("mark-nodes", "MarkNodes");
static NODES: Setting = Setting::new("nodes", "Nodes/Only");
static SAMPLE: Setting = Setting::new("sample", "Nodes/Sample");
static PER_ZONE: Setting = Setting::new("per-zone", "Nodes/PerZone");
static JOINED: Setting = Setting::new("joined", "Nodes/Joined");
static MAX_PARALLEL: Setting = Setting::new("max-parallel", "Nodes/MaxParallel");

/// The flags that describe a run
#[derive(Clone, clap::Args)]
pub(crate) struct RunFlags {
    #[command(flatten)]
    pub plugins: PluginFlags,
    #[command(flatten)]
    pub e2e: E2eFlags,
    #[command(flatten)]
    pub images: ImageFlags,
    #[command(flatten)]
    pub run: SettingFlags,
    #[command(flatten)]
    pub waiting: WaitingFlags,
    #[command(flatten)]
    pub preflight: PreflightFlags,
    #[command(flatten)]
    pub cluster: ClusterFlags,
}

/// The plugins of a run
#[derive(Clone, clap::Args)]
#[command(next_help_heading = "Plugins")]
pub(crate) struct PluginFlags {
    #[arg(
        short,
        long = "plugin",
        value_name = "PLUGIN",
        help = "Plugin to run: file, folder, URL, installed or built-in name, or - for stdin; \
                @NAME renames it [default: e2e, systemd-logs]"
    )]
    pub plugins: Vec<String>,
    #[arg(
        long,
        value_name = "PLUGIN.NAME=VALUE",
        value_parser = placed_text(),
        help = PLUGIN_ENV_HELP,
        hide_short_help = true
    )]
    pub plugin_env: Vec<Placed<String>>,
    #[arg(
        long,
        value_name = "WORD",
        help = "Whether to run plugins that declare no permissions, with all rights of the run \
                [default: any]",
        hide_short_help = true
    )]
    pub plugin_permissions: Option<PluginPermissions>,
    /// Image of a plugin
    #[arg(long, value_name = "PLUGIN:IMAGE", value_parser = placed_text(), hide_short_help = true)]
    pub plugin_image: Vec<Placed<String>>,
    #[command(flatten)]
    pub default_pod_spec: DefaultPodSpecFlag,
}

/// Which plugins may run.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum PluginPermissions {
    Any,
    Declared,
}

/// The pod spec of a plugin
#[derive(Clone, Copy, clap::Args)]
pub(crate) struct DefaultPodSpecFlag {
    /// Include the default pod specs in plugin definitions
    #[arg(long = "show-default-podspec", hide_short_help = true)]
    pub show_default_pod_spec: bool,
}

/// The e2e tests
#[derive(Clone, clap::Args)]
#[command(next_help_heading = "E2E tests")]
pub(crate) struct E2eFlags {
    #[arg(
        short,
        long,
        value_name = "MODE",
        value_parser = placed(words(focus::NAMES).try_map(mode_named)),
        conflicts_with_all = ["e2e_focus", "e2e_skip"],
        help = "Which tests run; see `sonobuoy modes` [default: non-disruptive-conformance]"
    )]
    pub mode: Option<Placed<&'static Mode>>,
    #[arg(
        long,
        value_name = "REGEX",
        value_parser = placed(parse_regex),
        help = "Only tests that match [default: \\[Conformance\\]]"
    )]
    pub e2e_focus: Option<Placed<String>>,
    #[arg(
        long,
        value_name = "REGEX",
        value_parser = placed(parse_regex),
        help = "Leave out tests that match [default: \\[Disruptive\\]|NoExecuteTaintManager]"
    )]
    pub e2e_skip: Option<Placed<String>>,
    /// Whether tests run in parallel
    #[arg(long, value_name = "VALUE", value_parser = placed_text(), hide = true)]
    pub e2e_parallel: Option<Placed<String>>,
    /// Only the tests that failed in this archive
    #[arg(
        long,
        value_name = "ARCHIVE",
        value_parser = placed_text(),
        conflicts_with_all = ["e2e_focus", "e2e_skip", "mode"],
        hide_short_help = true
    )]
    pub rerun_failed: Option<Placed<String>>,
    /// Run the tests that an interrupted run has not run; with several clusters: run those without
    /// an archive in this folder
    #[arg(long, value_name = "ARCHIVE", value_parser = placed_text(), hide_short_help = true)]
    pub resume: Option<Placed<String>>,
    /// Run the tests as N plugins in parallel, with one result
    #[arg(
        long,
        value_name = "N",
        value_parser = within::<usize>(2..=MAX_PARTS),
        hide_short_help = true
    )]
    pub split: Option<usize>,
    #[arg(
        long,
        value_name = "FILE",
        help = "With --split: names of all tests, one per line, or a kit [default: ask the \
                conformance image]",
        hide_short_help = true
    )]
    pub tests: Option<String>,
    #[arg(
        long,
        value_name = "N",
        value_parser = placed(within::<u64>(0..=MAX_ATTEMPTS)),
        help = RETRY_FAILED.help(
            "Run failed tests again, up to N times in the same run; those that pass then are flaky"
        ),
        hide_short_help = true
    )]
    pub retry_failed: Option<Placed<u64>>,
    #[command(flatten)]
    pub repositories: RepositoryFlags,
    #[arg(
        long,
        value_name = "FILE",
        value_parser = placed_text(),
        help = DOCKER_CONFIG_FILE.help(
            "Registry credentials that the tests use, for Kubernetes 1.27 and later"
        ),
        hide_short_help = true
    )]
    pub e2e_docker_config_file: Option<Placed<String>>,
    /// Private key for tests that log in to nodes
    #[arg(long, value_name = "FILE", value_parser = placed_text(), hide_short_help = true)]
    pub ssh_key: Option<Placed<String>>,
    /// User for tests that log in to nodes
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    pub ssh_user: Option<String>,
}

fn mode_named(name: &'static str) -> Result<&'static Mode, &'static str> {
    Mode::named(name).ok_or("an unknown mode")
}

/// The registries of the e2e tests
#[derive(Clone, clap::Args)]
pub(crate) struct RepositoryFlags {
    /// Registry with the images of the e2e tests
    #[arg(
        long,
        value_name = "REGISTRY",
        value_parser = placed_text(),
        conflicts_with = "e2e_repo_config",
        hide_short_help = true
    )]
    pub e2e_repo: Option<Placed<String>>,
    /// File that names registries for the images of the e2e tests
    #[arg(long, value_name = "FILE", value_parser = placed_text(), hide_short_help = true)]
    pub e2e_repo_config: Option<Placed<String>>,
}

/// The images of a run
#[derive(Clone, clap::Args)]
#[command(next_help_heading = "Images")]
pub(crate) struct ImageFlags {
    #[arg(
        long,
        alias = "kube-conformance-image-version",
        value_name = "VERSION",
        value_parser = placed(parse_version),
        help = KUBERNETES_VERSION_HELP,
        hide_short_help = true
    )]
    pub kubernetes_version: Option<Placed<String>>,
    /// Image of the e2e plugin
    #[arg(long, value_name = "IMAGE", value_parser = placed_text(), hide_short_help = true)]
    pub kube_conformance_image: Option<Placed<String>>,
    /// Image of the systemd-logs plugin
    #[arg(long, value_name = "IMAGE", value_parser = placed_text(), hide_short_help = true)]
    pub systemd_logs_image: Option<Placed<String>>,
    /// Image of aggregator and workers
    #[arg(long, value_name = "IMAGE", value_parser = placed_text(), hide_short_help = true)]
    pub sonobuoy_image: Option<Placed<String>>,
    /// Registry with every image of every plugin and of the e2e tests
    #[arg(long, value_name = "REGISTRY", hide_short_help = true)]
    pub registry: Option<String>,
    /// Kit that was loaded or pushed: use its plugins, version and images
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub kit: Option<String>,
    #[arg(
        long,
        value_name = "POLICY",
        value_parser = placed_text(),
        help = PULL_POLICY.help("Pull policy of Sonobuoy's image and of the built-in plugins"),
        hide_short_help = true
    )]
    pub image_pull_policy: Option<Placed<String>>,
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_parser = placed(parse_bool),
        help = FORCE_PULL_POLICY.help("Use that policy for all plugins"),
        hide_short_help = true
    )]
    pub force_image_pull_policy: Option<Placed<bool>>,
    #[arg(
        long,
        value_name = "NAME",
        value_parser = placed_text(),
        help = PULL_SECRET.help(
            "Secret of the run's namespace with the credentials of a private registry"
        ),
        hide_short_help = true
    )]
    pub image_pull_secret: Option<Placed<String>>,
}

/// The run itself
#[derive(Clone, clap::Args)]
#[command(next_help_heading = "The run")]
pub(crate) struct SettingFlags {
    #[command(flatten)]
    pub config: ConfigFlag,
    /// Use this manifest instead of making one; - is stdin
    #[arg(short, long, value_name = "FILE", hide_short_help = true)]
    pub file: Option<String>,
    #[command(flatten)]
    pub namespace: RunNamespaceFlag,
    #[arg(
        long,
        value_name = "SECONDS",
        value_parser = placed(parse_seconds),
        help = TIMEOUT.help(
            "Time limit of the run (seconds, or a duration such as 90m); 0 for none"
        )
    )]
    pub timeout: Option<Placed<i64>>,
    #[command(flatten)]
    pub rbac: RbacFlag,
    #[arg(
        long,
        value_name = "WORD",
        value_parser = placed_text(),
        help = AGGREGATOR_PERMISSIONS.help(
            "What the run may do: clusterAdmin, clusterRead or namespaceAdmin"
        ),
        hide_short_help = true
    )]
    pub aggregator_permissions: Option<Placed<String>>,
    /// Label of the node the aggregator runs on
    #[arg(long, value_name = "KEY:VALUE", hide_short_help = true)]
    pub aggregator_node_selector: Vec<String>,
    #[arg(
        long,
        value_name = "WORD",
        value_parser = placed_text(),
        help = SECURITY_CONTEXT_MODE.help("User that the aggregator runs as: nonroot or none"),
        hide_short_help = true
    )]
    pub security_context_mode: Option<Placed<String>>,
    #[arg(
        long,
        value_name = "NAME",
        value_parser = placed_text(),
        help = SERVICE_ACCOUNT_NAME.help("Service account of the run"),
        hide_short_help = true
    )]
    pub service_account_name: Option<Placed<String>>,
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_parser = placed(parse_bool),
        help = EXISTING_SERVICE_ACCOUNT.help("Use a service account that already exists"),
        hide_short_help = true
    )]
    pub existing_service_account: Option<Placed<bool>>,
    #[arg(
        long,
        value_name = "LEVEL",
        value_parser = placed_text(),
        help = PSA_ENFORCE_LEVEL.help("Pod Security level of the namespace"),
        hide_short_help = true
    )]
    pub namespace_psa_enforce_level: Option<Placed<String>>,
    #[arg(
        long,
        value_name = "WORD",
        value_parser = placed(words(&IdentityMode::WORDS)),
        help = "How workers authenticate: with one certificate per worker, or one per plugin \
                [default: auto]",
        hide_short_help = true
    )]
    pub identity: Option<Placed<&'static str>>,
    #[command(flatten)]
    pub harden: HardenFlag,
    #[command(flatten)]
    pub redaction: Varied<RedactionFlags, OfGeneratedManifest>,
    /// Take no snapshot of the cluster, and do without the permission to read it
    #[arg(long, conflicts_with = "file", hide_short_help = true)]
    pub no_snapshot: bool,
    /// Write the verdict of each node into this condition of it: True if everything passed there,
    /// False if something failed, Unknown without a result
    #[arg(
        long,
        value_name = "TYPE",
        value_parser = placed_text(),
        conflicts_with = "file",
        hide_short_help = true
    )]
    pub mark_nodes: Option<Placed<String>>,
    /// Volume claim for the results, so that they survive the loss of a node
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    pub results_pvc: Option<String>,
    /// Service that publishes the status of the run
    #[arg(
        long,
        value_name = "WORD",
        value_enum,
        default_value_t = StatusServiceKind::None,
        hide_short_help = true
    )]
    pub status_service: StatusServiceKind,
    #[command(flatten)]
    pub credentials: CredentialsFlag,
}

/// The configuration of a run
#[derive(Clone, clap::Args)]
pub(crate) struct ConfigFlag {
    /// Run configuration (JSON); comes before the flags that override it
    #[arg(long, value_name = "FILE", value_parser = placed_text(), hide_short_help = true)]
    pub config: Option<Placed<String>>,
}

/// The namespace of a run
#[derive(Clone, clap::Args)]
pub(crate) struct RunNamespaceFlag {
    #[arg(
        short,
        long,
        value_name = "NAME",
        value_parser = placed_text(),
        help = "Namespace of the run [default: $SONOBUOY_NAMESPACE or sonobuoy]"
    )]
    pub namespace: Option<Placed<String>>,
}

/// The roles of a run
#[derive(Clone, clap::Args)]
pub(crate) struct RbacFlag {
    /// Whether to create RBAC objects; Detect asks the cluster
    #[arg(
        long,
        value_name = "WORD",
        value_enum,
        default_value_t = RbacMode::Detect,
        hide_short_help = true
    )]
    pub rbac: RbacMode,
}

/// Whether a cluster has roles and bindings.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "PascalCase")]
pub(crate) enum RbacMode {
    Enable,
    Disable,
    Detect,
}

impl RbacMode {
    /// The value of the flag.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Enable => "Enable",
            Self::Disable => "Disable",
            Self::Detect => "Detect",
        }
    }

    /// Whether to create roles and bindings; `Detect` queries the cluster's API groups.
    pub(crate) fn has_rbac(self, cluster: &ClusterFlags) -> Result<bool> {
        match self {
            Self::Enable => return Ok(true),
            Self::Disable => return Ok(false),
            Self::Detect => {}
        }
        // Where nothing can be asked, a flag would not help.
        let client = cluster.client()?;
        let groups = client
            .send(&Request::raw(Method::GET, "/apis"))
            .map_err(|error| {
                let is_unreached = error.is_unreached();
                let error = anyhow::Error::new(error);
                match is_unreached {
                    true => error,
                    false => error.context(
                        "cannot ask the cluster whether it has RBAC; say so with --rbac Enable or \
                         Disable",
                    ),
                }
            })?;
        Ok(groups["groups"].items().any(|group| {
            group["preferredVersion"]["groupVersion"] == "rbac.authorization.k8s.io/v1"
        }))
    }
}

/// The form of the objects of a run
#[derive(Clone, clap::Args)]
pub(crate) struct HardenFlag {
    /// Make the aggregator's pod survive restarts, limit its resources and privileges, and give
    /// each plugin a separate account; off creates the original's objects
    #[arg(
        long,
        value_name = "WORD",
        value_enum,
        default_value_t = Harden::On,
        hide_short_help = true
    )]
    pub harden: Harden,
}

/// Whether to create hardened objects, or those of the original.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Harden {
    On,
    Off,
}

impl Harden {
    /// The value of the flag.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Off => "off",
        }
    }
}

/// The kind of the service that publishes the status.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum StatusServiceKind {
    None,
    #[value(name = "ClusterIP")]
    ClusterIp,
    #[value(name = "NodePort")]
    NodePort,
    #[value(name = "LoadBalancer")]
    LoadBalancer,
}

impl StatusServiceKind {
    /// The type of the service; `None` for no service.
    pub(crate) fn service_type(self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::ClusterIp => Some("ClusterIP"),
            Self::NodePort => Some("NodePort"),
            Self::LoadBalancer => Some("LoadBalancer"),
        }
    }
}

/// The redaction of a snapshot
#[derive(Clone, clap::Args)]
pub(crate) struct RedactionFlags {
    /// Rules (YAML) for further redaction of the snapshot
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with = "no_redact",
        hide_short_help = true
    )]
    pub redact: Option<String>,
    /// Do not hide secrets in the snapshot
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_parser = parse_bool,
        hide_short_help = true
    )]
    pub no_redact: Option<bool>,
}

/// Declares flags that change the generated manifest, which a given one replaces.
#[derive(Clone)]
pub(crate) struct OfGeneratedManifest;

impl Variation for OfGeneratedManifest {
    fn change(arg: Arg) -> Arg {
        arg.conflicts_with("file")
    }
}

impl RedactionFlags {
    /// Rules of a file add to those of the configuration.
    pub(crate) fn apply(&self, redaction: &mut Redaction) -> Result<()> {
        if let Some(is_off) = self.no_redact {
            redaction.off = is_off;
        }
        if let Some(path) = self.redact.filled() {
            let rules = read_text(path)?;
            redaction
                .add(&rules)
                .map_err(|error| anyhow!("redaction rules `{path}`, {error}"))?;
        }
        Ok(())
    }
}

/// How to wait for a run
#[derive(Clone, clap::Args)]
#[command(next_help_heading = "Waiting")]
pub(crate) struct WaitingFlags {
    /// Wait for the end, at most this long (minutes, or a duration such as 2h); a day without a
    /// value
    #[arg(
        long,
        value_name = "MINUTES",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "1440",
        default_value = "0",
        hide_default_value = true,
        value_parser = parse_minutes
    )]
    pub wait: std::time::Duration,
    #[arg(
        long,
        value_name = "WORD",
        help = "What to print while waiting [default: Progress]",
        hide_short_help = true
    )]
    pub wait_output: Option<WaitOutput>,
}

/// What to print while waiting.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "PascalCase")]
pub(crate) enum WaitOutput {
    Silent,
    Spinner,
    Progress,
}

/// How to show the progress of a run
#[derive(Clone, clap::Args)]
#[command(next_help_heading = "Waiting")]
pub(crate) struct ProgressFlags {
    #[arg(
        long,
        value_name = "WORD",
        help = "How to show progress: a line for each change, a board drawn in place, or events \
                in JSON [default: board on a terminal]",
        hide_short_help = true
    )]
    pub output: Option<ProgressForm>,
    #[command(flatten)]
    pub estimate: EstimateFlag,
}

impl ProgressFlags {
    /// The flags for one of several clusters, whose progress is shown as a whole.
    pub(crate) fn narrowed(self) -> Self {
        Self {
            output: Some(ProgressForm::Json),
            ..self
        }
    }
}

/// The estimate of the remaining time
#[derive(Clone, clap::Args)]
pub(crate) struct EstimateFlag {
    /// Archive of an earlier run, from which the board estimates the remaining time of the tests
    #[arg(long, value_name = "ARCHIVE", hide_short_help = true)]
    pub estimate_from: Option<String>,
}

/// The checks before a run
#[derive(Clone, clap::Args)]
#[command(next_help_heading = "Cluster")]
pub(crate) struct PreflightFlags {
    /// Checks to skip: dnscheck, versioncheck, existingnamespace, references; all without a value
    #[arg(
        long,
        value_name = "CHECK,...",
        value_delimiter = ',',
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        hide_short_help = true
    )]
    pub skip_preflight: Vec<String>,
    /// Namespace of the DNS pods
    #[arg(long, value_name = "NAME", default_value = DNS_NAMESPACE, hide_short_help = true)]
    pub dns_namespace: String,
    /// Labels of the DNS pods
    #[arg(
        long,
        value_name = "LABEL,...",
        value_delimiter = ',',
        default_values = DNS_POD_LABELS,
        hide_short_help = true
    )]
    pub dns_pod_labels: Vec<String>,
}

/// The nodes of plugins with the driver Nodes
#[derive(Clone, Default, clap::Args)]
#[command(next_help_heading = "Nodes (plugins with the driver Nodes)")]
pub(crate) struct NodeFlags {
    #[arg(
        long,
        value_name = "NAME,...|LABEL",
        value_parser = placed_text(),
        help = NODES.help("Only these nodes: names, or labels such as zone=a,!gpu"),
        hide_short_help = true
    )]
    pub nodes: Option<Placed<String>>,
    #[arg(
        long,
        value_name = "N",
        value_parser = placed(within::<u64>(1..=i64::from(u32::MAX))),
        help = SAMPLE.help("At most this many nodes, chosen at random"),
        hide_short_help = true
    )]
    pub sample: Option<Placed<u64>>,
    #[arg(
        long,
        value_name = "N",
        value_parser = placed(within::<u64>(1..=i64::from(u32::MAX))),
        help = PER_ZONE.help("At most this many nodes of each zone, chosen at random"),
        hide_short_help = true
    )]
    pub per_zone: Option<Placed<u64>>,
    #[arg(
        long,
        value_name = "WORD",
        value_parser = placed(words(&["take", "ignore"])),
        help = JOINED.help("What to do with nodes that join during the run"),
        hide_short_help = true
    )]
    pub joined: Option<Placed<&'static str>>,
    #[arg(
        long,
        value_name = "N|N%",
        value_parser = placed_text(),
        help = MAX_PARALLEL.help("At most this many nodes at once, or this share of them"),
        hide_short_help = true
    )]
    pub max_parallel: Option<Placed<String>>,
}

impl RunFlags {
    /// The settings that these flags override.
    pub(crate) fn overrides(&self) -> Vec<Override> {
        let Self {
            e2e, images, run, ..
        } = self;
        let overrides = [
            NAMESPACE.overridden(&run.namespace.namespace),
            SONOBUOY_IMAGE.overridden(&images.sonobuoy_image),
            PULL_POLICY.overridden(&images.image_pull_policy),
            FORCE_PULL_POLICY.overridden(&images.force_image_pull_policy),
            PULL_SECRET.overridden(&images.image_pull_secret),
            TIMEOUT.overridden(&run.timeout),
            AGGREGATOR_PERMISSIONS.overridden(&run.aggregator_permissions),
            SECURITY_CONTEXT_MODE.overridden(&run.security_context_mode),
            SERVICE_ACCOUNT_NAME.overridden(&run.service_account_name),
            EXISTING_SERVICE_ACCOUNT.overridden(&run.existing_service_account),
            PSA_ENFORCE_LEVEL.overridden(&run.namespace_psa_enforce_level),
            DOCKER_CONFIG_FILE.overridden(&e2e.e2e_docker_config_file),
            RETRY_FAILED.overridden(&e2e.retry_failed),
            IDENTITY.overridden(&run.identity),
            MARK_NODES.overridden(&run.mark_nodes),
        ];
        overrides.into_iter().flatten().collect()
    }

    /// The flags that lead to the run.
    pub(crate) fn access(&self) -> RunAccess<'_> {
        let namespace = &self.run.namespace.namespace;
        RunAccess {
            cluster: &self.cluster,
            namespace: namespace.as_ref().map(|name| name.value.as_str()),
            credentials: self.run.credentials.credentials.as_deref(),
        }
    }

    /// The flags for one of several clusters: `--resume` is for the whole.
    pub(crate) fn narrowed(mut self) -> Self {
        self.e2e.resume = None;
        self
    }

    /// Whether the mode is that of certification.
    pub(crate) fn is_certified(&self) -> bool {
        self.e2e
            .mode
            .is_some_and(|mode| mode.value.name == focus::CERTIFIED)
    }
}

impl NodeFlags {
    /// The settings that these flags override.
    pub(crate) fn overrides(&self) -> Vec<Override> {
        let overrides = [
            NODES.overridden(&self.nodes),
            SAMPLE.overridden(&self.sample),
            PER_ZONE.overridden(&self.per_zone),
            JOINED.overridden(&self.joined),
            MAX_PARALLEL.overridden(&self.max_parallel),
        ];
        overrides.into_iter().flatten().collect()
    }
}

/// The configuration file over the defaults.
pub(crate) fn read_configuration(path: Option<&str>) -> Result<config::Run> {
    let mut run = config::Run::standard();
    if let Some(path) = path {
        let file = read_text(path)?;
        run.overlay(&file)
            .map_err(|error| match file.trim_start().starts_with('{') {
                true => anyhow!("configuration `{path}`, {error}"),
                false => anyhow!(
                    "configuration `{path}` is not JSON; `sonobuoy gen config` prints an example"
                ),
            })?;
    }
    Ok(run)
}
