//! The flags that `run`, `doctor`, `wait` and `gen` share: settings and a plan.
//!
//! Flags of one kind may be in any order and the later one wins, so flags that change plugins are
//! applied in order. Reads the files named by flags; queries the cluster's version only if
//! necessary. Defaults of settings are defined in the configuration alone: flags with defaults
//! would hide the values of a configuration file.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context as _, Result, anyhow, bail, ensure};

use super::flag::{Args, invalid, usage_error};
use super::{cluster, output};
use crate::deploy::{Edit, Plan, PluginChange, Split};
use crate::image::conformance::Tests;
use crate::image::kit::{self, Kit};
use crate::image::lists::ListSource;
use crate::image::{CONFORMANCE, CONFORMANCE_LATEST};
use base::at::At as _;
use base::json::json;
use base::stop::Stop;
use base::{Joined as _, near, pattern, small, sys};
use kube::{Method, Object as _, Request};
use model::config;
use model::names::{self, PLUGIN_CONFIG_DIR};
use model::plugin::focus::{self, CERTIFIED, FOCUS, Mode, PARALLEL, SKIP, listed_test};
use model::plugin::{self, Definition, DriverKind, Installed, Loaded, builtin};

/// The URL with the name of the newest build.
const LATEST: &str = "https://storage.googleapis.com/k8s-release-dev/ci/latest.txt";
/// The default pull secret for `--e2e-docker-config-file`.
const PULL_SECRET: &str = "auth-repo-cred";
/// Maximum size of files named by flags: keys, registry lists, credentials.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// More parts would load a cluster more than the tests do.
pub(super) const MAX_PARTS: i64 = 20;

/// The flags that override a setting of the configuration file, with its path there.
const SETTINGS: &[(&str, &str)] = &[
    ("namespace", "Namespace"),
    ("sonobuoy-image", "WorkerImage"),
    ("image-pull-policy", "ImagePullPolicy"),
    ("force-image-pull-policy", "ForceImagePullPolicy"),
    ("image-pull-secret", "ImagePullSecrets"),
    ("timeout", "Server/timeoutseconds"),
    ("aggregator-permissions", "AggregatorPermissions"),
    ("security-context-mode", "SecurityContextMode"),
    ("service-account-name", "ServiceAccountName"),
    ("existing-service-account", "ExistingServiceAccount"),
    ("namespace-psa-enforce-level", "NamespacePSAEnforceLevel"),
    ("e2e-docker-config-file", "E2EDockerConfigFile"),
    ("retry-failed", "RetryFailed"),
    ("identity", "Identity"),
    ("nodes", "Nodes/Only"),
    ("sample", "Nodes/Sample"),
    ("per-zone", "Nodes/PerZone"),
    ("joined", "Nodes/Joined"),
    ("max-parallel", "Nodes/MaxParallel"),
];

type Env = BTreeMap<String, BTreeMap<String, String>>;

/// What the flags describe objects for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A run in a cluster, or checks before it.
    Run,
    /// A run on this machine, which queries no cluster: a flag sets the version.
    Local,
    /// Printed objects, like those of the original.
    Print,
}

/// The shared flags of a call.
pub(crate) struct RunArgs<'m> {
    args: Args<'m>,
    purpose: Purpose,
    /// The configuration file over the defaults, flags over both.
    pub(crate) config: config::Run,
}

impl<'m> RunArgs<'m> {
    /// Reads the settings, and checks flags against each other.
    pub(crate) fn new(args: Args<'m>, purpose: Purpose) -> Result<Self> {
        let creates = purpose != Purpose::Print;
        if args.word("mode") == CERTIFIED {
            for (flag, asks) in [
                ("retry-failed", "pass the first time"),
                ("split", "run one after the other"),
            ] {
                if args.number(flag) != 0 {
                    return Err(usage_error(format!(
                        "--{flag}: certified conformance requires tests that {asks}; leave out \
                         the flag or the mode"
                    )));
                }
            }
        }
        let selection = ["e2e-focus", "e2e-skip", "mode", "rerun-failed"];
        if let Some(flag) = selection
            .into_iter()
            .find(|flag| args.given("resume") && args.given(flag))
        {
            return Err(usage_error(format!(
                "--{flag} and --resume cannot be used together; leave one out"
            )));
        }
        if args.given("kube-conformance-image") && version_flag(args) != "auto" {
            log::warn!(
                "--kube-conformance-image and the version flags both set the image of the e2e \
                 plugin; the last one wins"
            );
        }
        // An empty variable in a script would otherwise mean the default.
        ensure!(
            !creates
                || !args.given("namespace")
                || args.text("namespace").or(args.text("file")).is_some(),
            cluster::NO_NAMESPACE
        );
        let standard = json!(config::Run::standard());
        let file = args.0.indices_of("config").into_iter().flatten().max();
        let mut overlays = Vec::new();
        for (id, path) in SETTINGS.iter().filter(|(id, _)| args.given(id)) {
            let value = match (
                args.0.try_get_one::<bool>(id),
                args.0.try_get_one::<i64>(id),
                args.text(id),
            ) {
                (Ok(Some(on)), ..) => json!(on),
                (_, Ok(Some(number)), _) => json!(number),
                (.., Some(text)) => json!(text),
                _ => continue,
            };
            // Flags without effect may come first.
            if standard.pointer(&format!("/{path}")) != Some(&value)
                && args.0.indices_of(id).into_iter().flatten().min() < file
            {
                return Err(usage_error(format!(
                    "--config comes after --{id}, which overrides it; write --config before the \
                     other flags"
                )));
            }
            overlays.push((
                id,
                path.rsplit('/')
                    .fold(value, |value, key| json!({key: value})),
            ));
        }
        let mut config = configuration(args)?;
        if let Some(name) = sys::variable(cluster::NAMESPACE) {
            config.namespace = name;
        }
        for (id, document) in overlays {
            config
                .overlay(&document.to_string())
                .map_err(|error| wrong_setting(id, &error))?;
        }
        if args.number("timeout") < 0 {
            return Err(usage_error("--timeout is negative; 0 means no limit"));
        }
        redaction(args, &mut config)?;
        if args.on("no-snapshot") {
            config.resources = Some(Vec::new());
        }
        check(&config, creates)?;
        Ok(Self {
            args,
            purpose,
            config,
        })
    }

    /// Checks the flags that are not settings, so that an error in one is found by the first
    /// command that reads it.
    pub(crate) fn check(&self) -> Result<()> {
        self.changes(true)?;
        self.node_selector()?;
        self.selected().map(drop)
    }

    /// The complete plan. `only` selects one built-in plugin.
    pub(crate) fn plan(mut self, only: Option<&str>) -> Result<Plan> {
        let (args, purpose) = (self.args, self.purpose);
        let (creates, local) = (purpose != Purpose::Print, purpose == Purpose::Local);
        let registry = args.text("registry");
        let kit = args.text("kit").map(kit).transpose()?;
        let config = &mut self.config;
        if config.worker_image == config::default_image() {
            if let Some(kit) = &kit {
                config.worker_image.clone_from(&kit.sonobuoy_image);
            }
            // A registry for all images has Sonobuoy's, too.
            if let Some(registry) = registry {
                config.worker_image = plugin::relocated(&config.worker_image, registry);
            }
        }
        if !config.e2e_docker_config_file.is_empty() && config.image_pull_secrets.is_empty() {
            config.image_pull_secrets = PULL_SECRET.into();
        }
        let found = self.found(only, kit.as_ref())?;
        let e2e = found
            .iter()
            .find(|found| found.definition.name() == builtin::E2E);
        let has_ours = e2e.is_some_and(|e2e| e2e.built_in);
        let (mut env, mut changes) = self.changes(has_ours)?;
        if only.is_some() {
            let others = self.selected()?;
            let is_given =
                |name: &String| found.iter().any(|found| found.definition.name() == name);
            env.retain(|name, _| {
                is_given(name) || !others.iter().any(|other| other.definition.name() == name)
            });
        }
        let e2e_env = env.entry(builtin::E2E.into()).or_default();
        if let Some(registry) = registry.filter(|_| e2e.is_some() && creates) {
            test_images(registry, e2e_env, &mut changes);
        }
        let harden = args.word("harden") == "on";
        let names_image = changes.iter().any(|change| {
            change.plugin == builtin::SYSTEMD_LOGS && matches!(change.edit, Edit::Image(_))
        });
        let own_logs = local || harden && creates && !names_image;
        let plugins: Vec<Definition> = found
            .into_iter()
            .map(|found| adopt(found, &self.config, own_logs, harden))
            .collect();
        if let Some(archive) = args.text("resume") {
            let before = interrupted(archive)?;
            (self.config.resumes, self.config.resumed_tests) = (before.run, before.ran);
        }
        if let Some(user) = args.text("ssh-user") {
            e2e_env.insert("KUBE_SSH_USER".into(), user.into());
        }
        let version = self.version(kit.as_ref(), &plugins)?;
        if has_ours && creates {
            name_tests(args, e2e_env, &version);
        }
        let split = split(args, kit.as_ref(), &version)?;
        let docker_config = self.docker_config(&version, &mut changes)?;
        let plan = Plan {
            rbac: !local && rbac(args)?,
            node_selector: self.node_selector()?,
            show_default_pod_spec: args.on("show-default-podspec"),
            level: args.word("level").to_owned(),
            harden,
            declared_only: args.word("plugin-permissions") == "declared",
            results_pvc: args.word("results-pvc").to_owned(),
            ssh_key: args.text("ssh-key").map(read_file).transpose()?,
            split,
            run: self.config,
            plugins,
            changes,
            registry: registry.map(str::to_owned),
            env,
            kubernetes_version: version,
            docker_config,
            ..Plan::default()
        };
        if only.is_none() && purpose != Purpose::Local {
            check_nodes(args, &plan)?;
        }
        Ok(plan)
    }

    /// The average duration of a selected test in the archive of `--estimate-from`.
    pub(crate) fn per_test(&self) -> Result<Option<std::time::Duration>> {
        let Some(archive) = self.args.text("estimate-from") else {
            return Ok(None);
        };
        let (env, _) = self.changes(true)?;
        let mut e2e = builtin::named(builtin::E2E).context("the built-in e2e")?;
        if let Some(env) = env.get(builtin::E2E) {
            e2e.set_env(env);
        }
        let of = |variable| {
            let text = e2e.env(variable).filter(|text| !text.is_empty());
            text.map(pattern::compile)
                .transpose()
                .map_err(|why| usage_error(format!("{variable}: {why}")))
        };
        let (focus, skip) = (of(FOCUS)?, of(SKIP)?);
        let chosen = |name: &str| {
            focus.as_ref().is_none_or(|one| one.is_match(name))
                && !skip.as_ref().is_some_and(|one| one.is_match(name))
        };
        per_test(archive, &chosen).map(Some)
    }

    /// The plugins of the plan: the built-in `only`, else those of `-p`, else those of a kit, else
    /// the default ones.
    fn found(&self, only: Option<&str>, kit: Option<&Kit>) -> Result<Vec<Loaded>> {
        let mut found = match (only, kit) {
            (Some(name), _) => plugin::find(name, None, &[])?,
            (_, Some(kit))
                if self.args.all("plugin").next().is_none() && !self.config.skip_plugins =>
            {
                of_kit(kit)?
            }
            _ => self.selected()?,
        };
        if let Some(chosen) = self
            .config
            .plugins
            .as_ref()
            .filter(|_| self.purpose == Purpose::Local)
        {
            // In a cluster, the aggregator does this.
            let chosen: Vec<String> = chosen.iter().map(|plugin| plugin.name.clone()).collect();
            plugin::select(&mut found, &chosen, |found| found.definition.name()).map_err(
                |name| {
                    anyhow!("plugin `{name}` is selected by `Plugins` of --config but not by `-p`")
                },
            )?;
        }
        Ok(found)
    }

    /// The plugins of `-p`, or the default ones.
    fn selected(&self) -> Result<Vec<Loaded>> {
        if self.config.skip_plugins {
            return Ok(Vec::new());
        }
        let mut names: Vec<&str> = self.args.all("plugin").collect();
        if names.is_empty() {
            names = builtin::DEFAULT.to_vec();
        }
        let installed = Installed::by_name();
        let path = self
            .config
            .plugin_search_path
            .as_deref()
            .unwrap_or_default();
        let found = names
            .into_iter()
            .map(|name| plugin::find(name, installed.as_ref(), path));
        Ok(found
            .collect::<Result<Vec<_>>>()?
            .into_iter()
            .flatten()
            .collect())
    }

    /// The flags that change plugins, in command-line order. Only the built-in e2e takes its image
    /// from the version.
    fn changes(&self, has_ours: bool) -> Result<(Env, Vec<PluginChange>)> {
        let mut given = BTreeMap::new();
        for id in self
            .args
            .0
            .ids()
            .map(clap::Id::as_str)
            .filter(|id| self.args.given(id))
        {
            let places = self.args.0.indices_of(id).into_iter().flatten();
            given.extend(places.zip(self.args.all(id).map(|value| (id, value))));
        }
        given.retain(|_, (id, _)| has_ours || *id != "kubernetes-version");
        let mut made = (Env::new(), Vec::new());
        given
            .into_values()
            .try_for_each(|(id, value)| change(id, value, &mut made))?;
        Ok(made)
    }

    fn node_selector(&self) -> Result<BTreeMap<String, String>> {
        const ID: &str = "aggregator-node-selector";
        let label = |label: &str| match label.split_once(':') {
            Some((key, value)) if !key.is_empty() && !value.is_empty() => {
                Ok((key.into(), value.into()))
            }
            _ => Err(invalid(ID, label, "write KEY:VALUE")),
        };
        self.args.all(ID).map(label).collect()
    }

    /// The version of Kubernetes in the environment of plugins.
    fn version(&self, kit: Option<&Kit>, plugins: &[Definition]) -> Result<String> {
        let creates = self.purpose != Purpose::Print;
        let is_auto = version_flag(self.args) == "auto";
        if is_auto && self.purpose == Purpose::Local {
            return Ok(String::new());
        }
        let cluster = kubernetes_version(self.args, creates);
        let of_kit = kit
            .map(|kit| &kit.kubernetes_version)
            .filter(|version| is_auto && !version.is_empty());
        match (of_kit, cluster) {
            // `run` and plugins that need the version fail without it; otherwise a warning
            // suffices.
            (_, Err(error)) if creates => Err(error),
            (Some(version), cluster) => {
                if let Ok(cluster) = cluster
                    && minor(&cluster) != minor(version)
                {
                    log::warn!("the kit is for Kubernetes {version}, and the cluster is {cluster}");
                }
                Ok(version.clone())
            }
            (None, Err(error)) if kit.is_none() && !plugins.iter().any(needs_version) => {
                log::warn!("plugins are not told the version of the cluster: {error:#}");
                Ok(String::new())
            }
            (None, cluster) => cluster,
        }
    }

    /// Registry credentials of the tests, which Kubernetes supports from 1.27 on.
    fn docker_config(
        &self,
        version: &str,
        changes: &mut Vec<PluginChange>,
    ) -> Result<Option<Vec<u8>>> {
        let path = &self.config.e2e_docker_config_file;
        if path.is_empty() {
            return Ok(None);
        }
        if minor(version).is_some_and(|minor| minor < 27) {
            return Err(usage_error(format!(
                "--e2e-docker-config-file needs Kubernetes 1.27 or later, and this is {version}"
            )));
        }
        let name = base_name(path)?;
        let word = format!("--e2e-docker-config-file={}/{name}", names::CREDENTIALS_DIR);
        changes.push(of_e2e(Edit::Credentials(
            self.config.image_pull_secrets.clone(),
            name,
        )));
        changes.push(of_e2e(Edit::Word("E2E_EXTRA_ARGS", word)));
        read_text(path).map(|text| Some(text.into_bytes()))
    }
}

/// The error of a setting in the words of its flag.
fn wrong_setting(id: &str, error: &yaml::Error) -> anyhow::Error {
    let setting = SETTINGS.iter().find(|(flag, _)| *flag == id);
    let path = setting.map_or_else(String::new, |(_, path)| path.replace('/', "."));
    match error.message.strip_prefix(&format!("`{path}`")) {
        Some(reason) => usage_error(format!("--{id}{reason}")),
        None => usage_error(format!("--{id}: {}", error.message)),
    }
}

/// Rejects flags about nodes if any plugin would ignore them: it would run on nodes that the user
/// excluded.
fn check_nodes(args: Args, plan: &Plan) -> Result<()> {
    let settings = plan.run.nodes.given();
    if settings.is_empty() {
        return Ok(());
    }
    let mut ignoring = plan.prepared()?;
    ignoring.retain(|plugin| plugin.config.driver != DriverKind::Nodes);
    if ignoring.is_empty() {
        return Ok(());
    }
    let setting_in_words = |(flag, key): &(&str, &str)| match args.given(flag) {
        true => format!("--{flag}"),
        false => format!("`{key}` of --config"),
    };
    let plugin_in_words = |plugin: &Definition| {
        format!(
            "`{}` (`driver: {}`)",
            plugin.name(),
            plugin.config.driver.name()
        )
    };
    let hint = match ignoring
        .iter()
        .all(|plugin| becomes_nodes_plugin(plugin.name(), plan))
    {
        true => "add `--harden on`, with which they have that driver",
        false => "give them that driver, or leave this out",
    };
    Err(usage_error(format!(
        "{} applies only to plugins with `driver: Nodes`, and would be ignored by {}: {hint}",
        settings.iter().map(setting_in_words).joined(", "),
        ignoring.iter().map(plugin_in_words).joined(", "),
    )))
}

/// Whether the plugin would have the driver Nodes in a hardened run.
fn becomes_nodes_plugin(name: &str, plan: &Plan) -> bool {
    let Some(plugin) = plan.plugins.iter().find(|plugin| plugin.name() == name) else {
        return false;
    };
    let mut hardened = plugin.clone();
    builtin::end_with_result(&mut hardened);
    hardened.config.driver == DriverKind::Nodes
}

/// The configuration file over the defaults.
pub(super) fn configuration(args: Args) -> Result<config::Run> {
    let mut run = config::Run::standard();
    if let Some(path) = args.text("config") {
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

/// Redaction rules of the snapshot: those of a file add to those of the configuration.
pub(crate) fn redaction(args: Args, run: &mut config::Run) -> Result<()> {
    if args.given("no-redact") {
        run.redaction.off = args.on("no-redact");
    }
    if let Some(path) = args.text("redact") {
        let rules = read_text(path)?;
        run.redaction
            .add(&rules)
            .map_err(|error| anyhow!("redaction rules `{path}`, {error}"))?;
    }
    Ok(())
}

/// The default of a flag that overrides a setting, if it is worth mentioning.
pub(super) fn default_of(id: &str) -> Option<String> {
    let (_, path) = SETTINGS
        .iter()
        .find(|(flag, _)| *flag == id && id != "sonobuoy-image")?;
    let standard = json!(config::Run::standard());
    let default = standard.pointer(&format!("/{path}"))?;
    let default = default
        .as_str()
        .map_or_else(|| default.to_string(), str::to_owned);
    Some(default).filter(|default| !["", "false"].contains(&default.as_str()))
}

/// Rejects values that the cluster would reject halfway through creating the run; warns of unknown
/// words, since Kubernetes or the aggregator may know them.
fn check(run: &config::Run, creates: bool) -> Result<()> {
    for (id, value, known) in [
        (
            "image-pull-policy",
            &run.image_pull_policy,
            &["Always", "IfNotPresent", "Never"][..],
        ),
        (
            "security-context-mode",
            &run.security_context_mode,
            &["nonroot", "none"],
        ),
    ] {
        if value.is_empty() || known.contains(&value.as_str()) {
            continue;
        }
        let (words, hint) = (known.join(", "), near::hint(value, known.iter().copied()));
        // Kubernetes would reject the pod with half of the run created; `gen` prints what the
        // original prints.
        if id == "image-pull-policy" && creates {
            return Err(invalid(
                id,
                value,
                &format!("it must be one of {words}{hint}"),
            ));
        }
        log::warn!("--{id} `{value}` is not one of {words}{hint}");
    }
    if (creates || !run.namespace.is_empty()) && !names::is_label(&run.namespace) {
        return Err(usage_error(format!(
            "`-n {}` is not a valid namespace name: use at most 63 lowercase letters, digits and \
             `-`, not at the ends",
            run.namespace
        )));
    }
    Ok(())
}

fn kit(path: &str) -> Result<Kit> {
    let kit = Kit::read(Path::new(path))?;
    kit.with_context(|| format!("`{path}` is not a kit; `sonobuoy images kit` makes one"))
}

/// The plugins of a kit: built-in ones in their built-in form, which flags apply to.
fn of_kit(kit: &Kit) -> Result<Vec<Loaded>> {
    let plugin = |(name, text): (&String, &String)| {
        let built_in = builtin::named(name).filter(|_| kit.built_in.contains(name));
        match built_in {
            Some(definition) => Ok(Loaded::built_in(definition)),
            None => plugin::read(text)
                .map_err(|error| anyhow!("the plugin `{name}` of the kit, {error}")),
        }
    };
    kit.plugins.iter().map(plugin).collect()
}

/// Points tests to the registry of all other images, unless set otherwise.
fn test_images(
    registry: &str,
    env: &mut BTreeMap<String, String>,
    changes: &mut Vec<PluginChange>,
) {
    const FILE: &str = "registries.yaml";
    const LIST: &str = "KUBE_TEST_REPO_LIST";
    if env.contains_key(LIST) || env.contains_key("KUBE_TEST_REPO") {
        return;
    }
    env.insert(LIST.into(), format!("{PLUGIN_CONFIG_DIR}/{FILE}"));
    changes.push(of_e2e(Edit::File(FILE.into(), kit::repositories(registry))));
}

/// A change to the e2e tests.
fn of_e2e(edit: Edit) -> PluginChange {
    PluginChange {
        plugin: builtin::E2E.into(),
        edit,
    }
}

/// Whether a plugin depends on the version of Kubernetes other than through its environment.
fn needs_version(plugin: &Definition) -> bool {
    plugin.name() == builtin::E2E
        || plugin
            .to_value()
            .to_string()
            .contains(names::VERSION_PLACEHOLDER)
}

/// Applies the settings to built-in definitions; notes about others are logged.
fn adopt(found: Loaded, run: &config::Run, own_logs: bool, harden: bool) -> Definition {
    for note in &found.notes {
        log::warn!("{note}");
    }
    let mut definition = found.definition;
    if let Some(spec) = &mut definition.pod_spec
        && spec["serviceAccountName"] == names::SERVICE_ACCOUNT
    {
        spec["serviceAccountName"] = run.service_account_name.clone().into();
    }
    if !found.built_in {
        return definition;
    }
    // Sonobuoy's image is present already, while the original's has to be pulled.
    if own_logs && let Some(own) = builtin::without_image(definition.name()) {
        definition = own;
    }
    definition.set_pull_policy(&run.image_pull_policy);
    if harden && definition.name() == builtin::SYSTEMD_LOGS {
        // The original's output lacks the field; the plugin only reads its node's journal.
        definition.config.permissions = Some(plugin::Permissions::None);
    }
    if definition.name() == builtin::E2E && !run.progress_updates_port.is_empty() {
        let url = format!(
            "--progress-report-url=http://localhost:{}/progress",
            run.progress_updates_port
        );
        definition.set_env([("E2E_EXTRA_ARGS", url)]);
    }
    definition
}

/// Adds the effect of one flag.
fn change(id: &str, value: &str, (env, changes): &mut (Env, Vec<PluginChange>)) -> Result<()> {
    let mut set = |plugin: &str, name: &str, value: &str| {
        env.entry(plugin.to_owned())
            .or_default()
            .insert(name.to_owned(), value.to_owned());
    };
    let mut set_e2e = |name: &str, value: &str| set(builtin::E2E, name, value);
    let image = |plugin: &str, image: &str| PluginChange {
        plugin: plugin.into(),
        edit: Edit::Image(image.into()),
    };
    match id {
        "plugin-env" => {
            let (plugin, rest) = value.split_once('.').unwrap_or(("", ""));
            let (name, content) = rest.split_once('=').unwrap_or((rest, ""));
            if plugin.is_empty() || plugin.contains('=') || name.is_empty() {
                return Err(invalid(
                    id,
                    value,
                    "write PLUGIN.NAME=VALUE, or PLUGIN.NAME to remove it",
                ));
            }
            set(plugin, name, content);
        }
        "plugin-image" => match value.split_once(':') {
            Some((plugin, name)) if !plugin.is_empty() && !name.is_empty() => {
                changes.push(image(plugin, name));
            }
            _ => return Err(invalid(id, value, "write PLUGIN:IMAGE")),
        },
        "mode" => {
            let mode = Mode::named(value).context("an unknown mode")?;
            set_e2e(FOCUS, mode.focus);
            set_e2e(SKIP, &mode.skip());
            set_e2e(PARALLEL, mode.parallel);
        }
        "e2e-focus" => set_e2e(FOCUS, value),
        "e2e-skip" => set_e2e(SKIP, value),
        "rerun-failed" => {
            let names = report::failed(value).with_context(|| format!("--{id} {value}"))?;
            ensure!(
                !names.is_empty(),
                "--{id} {value}: no e2e test failed in this archive"
            );
            let names: Vec<_> = names.iter().map(|name| pattern::quote(name)).collect();
            set_e2e(FOCUS, &names.join("|"));
            set_e2e(SKIP, "");
        }
        "resume" => {
            let before = interrupted(value)?;
            let ran = focus::exactly(before.ran.keys().map(String::as_str)).ok_or_else(|| {
                let why = format!(
                    "{} tests have run, too many to exclude by name",
                    before.ran.len()
                );
                invalid(id, value, &why)
            })?;
            let skip = [before.skip, ran]
                .into_iter()
                .filter(|skip| !skip.is_empty())
                .collect::<Vec<_>>();
            set_e2e(FOCUS, &before.focus);
            set_e2e(SKIP, &skip.join("|"));
        }
        "e2e-parallel" => set_e2e(PARALLEL, value),
        "e2e-repo" => set_e2e("KUBE_TEST_REPO", value),
        _ if value.is_empty() => {}
        "e2e-repo-config" | "configmap" => {
            let name = base_name(value)?;
            if id == "e2e-repo-config" {
                set_e2e(
                    "KUBE_TEST_REPO_LIST",
                    &format!("{PLUGIN_CONFIG_DIR}/{name}"),
                );
            }
            changes.push(of_e2e(Edit::File(name, read_text(value)?)));
        }
        "kubernetes-version" => {
            let repository = if value == "latest" {
                CONFORMANCE_LATEST
            } else {
                CONFORMANCE
            };
            changes.push(image(
                builtin::E2E,
                &format!("{repository}:{}", names::VERSION_PLACEHOLDER),
            ));
        }
        "ssh-key" => changes.push(of_e2e(Edit::SshKey)),
        "kube-conformance-image" | "systemd-logs-image" | "sonobuoy-image"
            if value.starts_with(['/', ':']) =>
        {
            return Err(invalid(
                id,
                value,
                "it names no registry or repository; is a variable unset?",
            ));
        }
        "kube-conformance-image" => changes.push(image(builtin::E2E, value)),
        "systemd-logs-image" => changes.push(image(builtin::SYSTEMD_LOGS, value)),
        _ => {}
    }
    Ok(())
}

/// The average duration of an e2e test in an archive.
pub(super) fn per_test(
    archive: &str,
    chosen: &dyn Fn(&str) -> bool,
) -> Result<std::time::Duration> {
    report::per_test(archive, chosen).with_context(|| format!("--estimate-from {archive}"))
}

/// The interrupted run of `--resume`.
fn interrupted(archive: &str) -> Result<report::Interrupted> {
    report::interrupted(archive).with_context(|| format!("--resume {archive}"))
}

/// The split of the tests, if requested.
fn split(args: Args, kit: Option<&Kit>, version: &str) -> Result<Option<Split>> {
    let parts = usize::try_from(args.number("split"))?;
    if parts == 0 {
        return Ok(None);
    }
    let tests = match (args.text("tests"), kit) {
        (Some(path), _) => tests(path)?,
        (None, Some(kit)) if !kit.tests.is_empty() => kit.tests.clone(),
        _ => {
            let ours = format!("{CONFORMANCE}:{version}");
            let ours = args
                .text("registry")
                .map_or(ours.clone(), |registry| plugin::relocated(&ours, registry));
            let image = args.text("kube-conformance-image").unwrap_or(&ours);
            output::exit_on_signal()?;
            let names =
                Tests::fetch(&registries(args)?, image, false).and_then(|tests| tests.names());
            names.context(
                "--split needs the names of the tests; name a list of them, or a kit, by --tests \
                 FILE",
            )?
        }
    };
    Ok(Some(Split { parts, tests }))
}

/// Makes the test framework name each test that it runs, unless flags say otherwise. Runs for
/// certification keep the standard flags, and the framework of versions before v1.25 does not
/// support all of these.
fn name_tests(args: Args, env: &mut BTreeMap<String, String>, version: &str) {
    const WORDS: [&str; 3] = [
        "-v",
        "--poll-progress-after=1m",
        "--poll-progress-interval=10m",
    ];
    if args.word("mode") == CERTIFIED || minor(version).is_none_or(|minor| minor < 25) {
        return;
    }
    let separator = env
        .get("E2E_EXTRA_ARGS_SEP")
        .filter(|text| !text.is_empty());
    let words = WORDS.join(separator.map_or(" ", String::as_str));
    env.entry("E2E_EXTRA_GINKGO_ARGS".to_owned())
        .or_insert(words);
}

/// The minor number of a version of Kubernetes.
fn minor(version: &str) -> Option<u32> {
    version.split('.').nth(1)?.parse().ok()
}

/// The tests of a kit, or the lines of a list.
pub(super) fn kit_or_list(path: &str) -> Result<Vec<String>> {
    let file = Path::new(path);
    Kit::read(file)?.map_or_else(|| ListSource::File(file).whole(path), |kit| Ok(kit.tests))
}

/// The names of tests in a list or a kit.
pub(super) fn tests(path: &str) -> Result<Vec<String>> {
    let lines = kit_or_list(path)?;
    let names = lines
        .iter()
        .map(|line| listed_test(line).unwrap_or(line).trim().to_owned());
    let names: Vec<_> = names.filter(|name| !name.is_empty()).collect();
    ensure!(!names.is_empty(), "`{path}` lists no tests");
    Ok(names)
}

/// The value of the flag with the version of Kubernetes.
fn version_flag<'m>(args: Args<'m>) -> &'m str {
    args.text("kubernetes-version").unwrap_or("auto")
}

/// The Kubernetes version of images. Only `auto` needs a cluster, which a command that `creates`
/// objects has.
pub(crate) fn kubernetes_version(args: Args, creates: bool) -> Result<String> {
    match version_flag(args) {
        "auto" => {
            let version = cluster::release(args).context("cannot ask the cluster for its version");
            if creates {
                return version;
            }
            version.map_err(|error| {
                anyhow!("{error:#}; without a cluster, name it with --kubernetes-version")
            })
        }
        "latest" => latest_version(),
        version => Ok(version.into()),
    }
}

/// The newest build of Kubernetes, as the tag of its conformance image.
pub(crate) fn latest_version() -> Result<String> {
    let answer = base::fetch::fetch(LATEST, MAX_FILE_BYTES)
        .context("looking for the newest build of Kubernetes")?;
    let version = String::from_utf8_lossy(&answer)
        .trim()
        .replacen('+', "_", 1);
    ensure!(
        version.starts_with('v'),
        "`{LATEST}` does not name a version of Kubernetes"
    );
    Ok(version)
}

/// Whether to create roles and bindings; `Detect` queries the cluster's API groups.
pub(crate) fn rbac(args: Args) -> Result<bool> {
    if args.word("rbac") != "Detect" || args.word("dry-run") == "client" {
        return Ok(args.word("rbac") != "Disable");
    }
    let groups = cluster::client(args)
        .and_then(|client| Ok(client.send(&Request::raw(Method::GET, "/apis"))?))
        .context(
            "cannot ask the cluster whether it has RBAC; say so with --rbac Enable or Disable",
        )?;
    Ok(groups["groups"]
        .items()
        .any(|group| group["preferredVersion"]["groupVersion"] == "rbac.authorization.k8s.io/v1"))
}

/// A client for image registries.
pub(super) fn registries(args: Args) -> Result<oci::Client> {
    oci::Client::new(names::USER_AGENT, args.on("plain-http"), &Stop::new())
}

/// The last part of a path.
pub(crate) fn base_name(path: &str) -> Result<String> {
    let name = Path::new(path).file_name().and_then(|name| name.to_str());
    name.map(str::to_owned)
        .with_context(|| format!("`{path}` does not name a file"))
}

/// The text of a file named by a flag.
pub(crate) fn read_text(path: &str) -> Result<String> {
    String::from_utf8(read_file(path)?).map_err(|error| {
        anyhow!(
            "`{path}` is not text: byte {} is not UTF-8",
            error.utf8_error().valid_up_to()
        )
    })
}

fn read_file(path: &str) -> Result<Vec<u8>> {
    match small::read(Path::new(path), MAX_FILE_BYTES) {
        Err(error) if error.kind() == ErrorKind::FileTooLarge => {
            bail!(
                "`{path}` has more than {} KiB, which is more than a ConfigMap can hold",
                MAX_FILE_BYTES >> 10
            )
        }
        read => read.at("cannot read", path),
    }
}
