//! From flags to a plan: settings, plugins, and what flags change in them.
//!
//! Flags of one kind may be in any order and the later one wins, so flags that change plugins are
//! applied in order. Reads the files named by flags; queries the cluster's version only if
//! necessary.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};

use super::cluster::{self, ClusterFlags};
use super::file::{MAX_FILE_BYTES, base_name, read_file, read_text};
use super::flag::{Filled as _, invalid, usage_error};
use super::output;
use super::run_flags::{
    Harden, NodeFlags, Override, PULL_POLICY, Placed, PluginPermissions, RbacMode, RunFlags,
    SECURITY_CONTEXT_MODE, Setting, read_configuration,
};
use crate::deploy::{Edit, Plan, PluginChange, Split};
use crate::image::conformance::Tests;
use crate::image::kit::{self, Kit};
use crate::image::lists::ListSource;
use crate::image::{CONFORMANCE, CONFORMANCE_LATEST};
use base::json::json;
use base::stop::Stop;
use base::{Joined as _, near, pattern, sys};
use model::config;
use model::names::{self, PLUGIN_CONFIG_DIR};
use model::plugin::focus::{self, FOCUS, Mode, PARALLEL, SKIP, listed_test};
use model::plugin::{self, Definition, DriverKind, Installed, Loaded, builtin};

/// The URL with the name of the newest build.
const LATEST: &str = "https://storage.googleapis.com/k8s-release-dev/ci/latest.txt";
/// The default pull secret for `--e2e-docker-config-file`.
const PULL_SECRET: &str = "auth-repo-cred";

/// Variables by plugin.
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

impl Purpose {
    /// Whether plugins will run, so that nothing may be left open or reach the cluster half-done.
    fn starts_plugins(self) -> bool {
        self != Self::Print
    }
}

/// The checked settings of a call.
pub(crate) struct RunRequest<'a> {
    purpose: Purpose,
    flags: &'a RunFlags,
    nodes: Option<&'a NodeFlags>,
    /// Files that the built-in e2e plugin finds in its configuration folder.
    config_maps: &'a [Placed<String>],
    /// Whether the run has roles.
    rbac: RbacMode,
    /// The log level of the run.
    level: &'a str,
    /// The configuration file over the defaults, flags over both.
    pub(crate) config: config::Run,
}

impl<'a> RunRequest<'a> {
    /// Reads the settings, and checks flags against each other.
    pub(crate) fn new(
        purpose: Purpose,
        flags: &'a RunFlags,
        nodes: Option<&'a NodeFlags>,
        level: &'a str,
    ) -> Result<Self> {
        check_combinations(flags)?;
        // An empty variable in a script would otherwise mean the default.
        let names_nothing = flags
            .run
            .namespace
            .namespace
            .as_ref()
            .is_some_and(|name| name.value.is_empty());
        ensure!(
            !(purpose.starts_plugins() && names_nothing && flags.run.file.filled().is_none()),
            cluster::NO_NAMESPACE
        );
        let config = configured(flags, nodes)?;
        check_settings(&config, purpose)?;
        Ok(Self {
            purpose,
            flags,
            nodes,
            config_maps: &[],
            rbac: flags.run.rbac.rbac,
            level,
            config,
        })
    }

    /// The same with files for the built-in e2e plugin.
    pub(crate) fn with_config_maps(self, config_maps: &'a [Placed<String>]) -> Self {
        Self {
            config_maps,
            ..self
        }
    }

    /// The same with another decision about roles.
    pub(crate) fn with_rbac(self, rbac: RbacMode) -> Self {
        Self { rbac, ..self }
    }

    /// Checks the flags that are not settings, so that an error in one is found by the first
    /// command that reads it.
    pub(crate) fn check(&self) -> Result<()> {
        self.changes(true)?;
        self.node_selector()?;
        self.selected_plugins().map(drop)
    }

    /// The complete plan. `only` selects one built-in plugin.
    pub(crate) fn plan(self, only: Option<&str>) -> Result<Plan> {
        let flags = self.flags;
        let kit = flags.images.kit.filled().map(read_kit).transpose()?;
        let kit = kit.as_ref();
        let registry = flags.images.registry.filled();
        let plugins = self.find_plugins(only, kit)?;
        let e2e = plugins
            .iter()
            .find(|loaded| loaded.definition.name() == builtin::E2E);
        let (has_e2e, has_built_in_e2e) = (e2e.is_some(), e2e.is_some_and(|e2e| e2e.built_in));
        let mut changes = self.changes(has_built_in_e2e)?;
        if only.is_some() {
            changes.leave_out(&self.selected_plugins()?, &plugins);
        }
        if let Some(registry) = registry
            && has_e2e
            && self.purpose.starts_plugins()
        {
            changes.use_registry_of_tests(registry);
        }
        let run = self.completed_config(kit)?;
        let own_logs = self.uses_own_logs(&changes);
        let plugins: Vec<Definition> = plugins
            .into_iter()
            .map(|loaded| adopt(loaded, &run, own_logs, self.is_hardened()))
            .collect();
        if let Some(user) = flags.e2e.ssh_user.filled() {
            changes.set_e2e("KUBE_SSH_USER", user);
        }
        let version = self.version(kit, &plugins)?;
        if has_built_in_e2e && self.purpose.starts_plugins() && !flags.is_certified() {
            changes.name_tests(&version);
        }
        let plan = Plan {
            rbac: self.purpose != Purpose::Local && self.rbac.has_rbac(&flags.cluster)?,
            node_selector: self.node_selector()?,
            show_default_pod_spec: flags.plugins.default_pod_spec.show_default_pod_spec,
            level: self.level.to_owned(),
            harden: self.is_hardened(),
            declared_only: flags.plugins.plugin_permissions == Some(PluginPermissions::Declared),
            results_pvc: flags.run.results_pvc.clone().unwrap_or_default(),
            ssh_key: flags.e2e.ssh_key.filled().map(read_file).transpose()?,
            split: self.split(kit, &version)?,
            docker_config: changes.use_docker_config(&run, &version)?,
            run,
            plugins,
            changes: changes.edits,
            registry: registry.map(str::to_owned),
            env: changes.env,
            kubernetes_version: version,
            ..Plan::default()
        };
        if only.is_none() && self.purpose != Purpose::Local {
            check_nodes(self.nodes, &plan)?;
            check_marks(&plan)?;
        }
        Ok(plan)
    }

    fn is_hardened(&self) -> bool {
        self.flags.run.harden.harden == Harden::On
    }

    /// Whether the built-in systemd-logs plugin uses Sonobuoy's image, which is present already,
    /// while the original's has to be pulled.
    fn uses_own_logs(&self, changes: &Changes) -> bool {
        let names_image = changes.edits.iter().any(|change| {
            change.plugin == builtin::SYSTEMD_LOGS && matches!(change.edit, Edit::Image(_))
        });
        match self.purpose {
            Purpose::Local => true,
            Purpose::Run => self.is_hardened() && !names_image,
            Purpose::Print => false,
        }
    }

    /// The configuration with what other flags imply.
    fn completed_config(&self, kit: Option<&Kit>) -> Result<config::Run> {
        let mut config = self.config.clone();
        if config.worker_image == config::default_image() {
            if let Some(kit) = kit {
                config.worker_image.clone_from(&kit.sonobuoy_image);
            }
            // A registry for all images has Sonobuoy's, too.
            if let Some(registry) = self.flags.images.registry.filled() {
                config.worker_image = plugin::relocated(&config.worker_image, registry);
            }
        }
        if !config.e2e_docker_config_file.is_empty() && config.image_pull_secrets.is_empty() {
            config.image_pull_secrets = PULL_SECRET.into();
        }
        if let Some(archive) = self.flags.e2e.resume.filled() {
            let before = interrupted(archive)?;
            config.resumes = before.run;
            config.resumed_tests = before.ran;
        }
        Ok(config)
    }

    /// The average duration of a selected test in the archive of `--estimate-from`.
    pub(crate) fn per_test(&self, archive: Option<&str>) -> Result<Option<Duration>> {
        let Some(archive) = archive else {
            return Ok(None);
        };
        let mut e2e = builtin::named(builtin::E2E).context("the built-in e2e")?;
        if let Some(env) = self.changes(true)?.env.get(builtin::E2E) {
            e2e.set_env(env);
        }
        let compile = |variable| {
            let text = e2e.env(variable).filter(|text| !text.is_empty());
            text.map(pattern::compile)
                .transpose()
                .map_err(|reason| usage_error(format!("{variable}: {reason}")))
        };
        let (focus, skip) = (compile(FOCUS)?, compile(SKIP)?);
        let is_selected = |name: &str| {
            focus.as_ref().is_none_or(|focus| focus.is_match(name))
                && !skip.as_ref().is_some_and(|skip| skip.is_match(name))
        };
        per_test(archive, &is_selected).map(Some)
    }

    /// The plugins of the plan: the built-in `only`, else those of `-p`, else those of a kit, else
    /// the default ones.
    fn find_plugins(&self, only: Option<&str>, kit: Option<&Kit>) -> Result<Vec<Loaded>> {
        let has_default_plugins = self.flags.plugins.plugins.is_empty();
        let mut plugins = match (only, kit) {
            (Some(name), _) => plugin::find(name, None, &[])?,
            (_, Some(kit)) if has_default_plugins && !self.config.skip_plugins => of_kit(kit)?,
            _ => self.selected_plugins()?,
        };
        if self.purpose == Purpose::Local
            && let Some(selected) = &self.config.plugins
        {
            // In a cluster, the aggregator does this.
            let names: Vec<String> = selected.iter().map(|plugin| plugin.name.clone()).collect();
            plugin::select(&mut plugins, &names, |loaded| loaded.definition.name()).map_err(
                |name| {
                    anyhow!("plugin `{name}` is selected by `Plugins` of --config but not by `-p`")
                },
            )?;
        }
        Ok(plugins)
    }

    /// The plugins of `-p`, or the default ones.
    fn selected_plugins(&self) -> Result<Vec<Loaded>> {
        if self.config.skip_plugins {
            return Ok(Vec::new());
        }
        let mut names: Vec<&str> = Vec::new();
        for name in &self.flags.plugins.plugins {
            names.push(name);
        }
        if names.is_empty() {
            names.extend(builtin::DEFAULT);
        }
        let installed = Installed::by_name();
        let path = self
            .config
            .plugin_search_path
            .as_deref()
            .unwrap_or_default();
        let mut plugins = Vec::new();
        for name in names {
            plugins.extend(plugin::find(name, installed.as_ref(), path)?);
        }
        Ok(plugins)
    }

    /// What the flags change in plugins, in command-line order. Only the built-in e2e takes its
    /// image from the version.
    fn changes(&self, has_built_in_e2e: bool) -> Result<Changes> {
        let mut changes = Changes::default();
        for flag in self.plugin_flags() {
            if has_built_in_e2e || !matches!(flag, PluginFlag::KubernetesVersion(_)) {
                changes.apply(flag)?;
            }
        }
        Ok(changes)
    }

    /// The flags that change plugins, in command-line order.
    fn plugin_flags(&self) -> Vec<PluginFlag<'a>> {
        let RunFlags {
            plugins,
            e2e,
            images,
            ..
        } = self.flags;
        let mut placed = Vec::new();
        let mut add = |flag: &'a Placed<String>, kind: FlagKind<'a>| {
            placed.push((flag.place, kind(&flag.value)));
        };
        for env in &plugins.plugin_env {
            add(env, PluginFlag::Env);
        }
        for image in &plugins.plugin_image {
            add(image, PluginFlag::Image);
        }
        for file in self.config_maps {
            add(file, PluginFlag::ConfigMap);
        }
        let texts: [(&'a Option<Placed<String>>, FlagKind<'a>); 12] = [
            (&e2e.e2e_focus, PluginFlag::Focus),
            (&e2e.e2e_skip, PluginFlag::Skip),
            (&e2e.rerun_failed, PluginFlag::RerunFailed),
            (&e2e.resume, PluginFlag::Resume),
            (&e2e.e2e_parallel, PluginFlag::Parallel),
            (&e2e.repositories.e2e_repo, PluginFlag::Repository),
            (
                &e2e.repositories.e2e_repo_config,
                PluginFlag::RepositoryConfig,
            ),
            (&e2e.ssh_key, PluginFlag::SshKey),
            (&images.kubernetes_version, PluginFlag::KubernetesVersion),
            (&images.kube_conformance_image, PluginFlag::ConformanceImage),
            (&images.systemd_logs_image, PluginFlag::SystemdLogsImage),
            (&images.sonobuoy_image, PluginFlag::SonobuoyImage),
        ];
        for (flag, kind) in texts {
            if let Some(flag) = flag {
                add(flag, kind);
            }
        }
        placed.extend(
            e2e.mode
                .map(|mode| (mode.place, PluginFlag::Mode(mode.value))),
        );
        placed.sort_by_key(|(place, _)| *place);
        placed.into_iter().map(|(_, flag)| flag).collect()
    }

    fn node_selector(&self) -> Result<BTreeMap<String, String>> {
        let parse = |label: &String| match label.split_once(':') {
            Some((key, value)) if !key.is_empty() && !value.is_empty() => {
                Ok((key.into(), value.into()))
            }
            _ => Err(invalid(
                "aggregator-node-selector",
                label,
                "write KEY:VALUE",
            )),
        };
        let labels = &self.flags.run.aggregator_node_selector;
        labels.iter().map(parse).collect()
    }

    /// The version of Kubernetes in the environment of plugins.
    fn version(&self, kit: Option<&Kit>, plugins: &[Definition]) -> Result<String> {
        let flag = version_flag(self.flags);
        let is_auto = flag == "auto";
        if is_auto && self.purpose == Purpose::Local {
            return Ok(String::new());
        }
        let starts_plugins = self.purpose.starts_plugins();
        let cluster = kubernetes_version(Some(flag), &self.flags.cluster, starts_plugins);
        let of_kit = kit
            .map(|kit| &kit.kubernetes_version)
            .filter(|version| is_auto && !version.is_empty());
        match (of_kit, cluster) {
            // `run` and plugins that need the version fail without it; otherwise a warning
            // suffices.
            (_, Err(error)) if starts_plugins => Err(error),
            (Some(version), cluster) => {
                if let Ok(cluster) = cluster
                    && minor(&cluster) != minor(version)
                {
                    log::warn!("the kit is for Kubernetes {version}, and the cluster is {cluster}");
                }
                Ok(version.clone())
            }
            (None, Err(error)) if kit.is_none() && !plugins.iter().any(needs_version) => {
                log::warn!("plugins do not receive the cluster's version: {error:#}");
                Ok(String::new())
            }
            (None, cluster) => cluster,
        }
    }

    /// The split of the tests, if requested.
    fn split(&self, kit: Option<&Kit>, version: &str) -> Result<Option<Split>> {
        let flags = self.flags;
        let Some(parts) = flags.e2e.split else {
            return Ok(None);
        };
        if let Some(path) = flags.e2e.tests.filled() {
            let tests = read_tests(path)?;
            return Ok(Some(Split { parts, tests }));
        }
        if let Some(kit) = kit.filter(|kit| !kit.tests.is_empty()) {
            let tests = kit.tests.clone();
            return Ok(Some(Split { parts, tests }));
        }
        let standard = format!("{CONFORMANCE}:{version}");
        let standard = match flags.images.registry.filled() {
            Some(registry) => plugin::relocated(&standard, registry),
            None => standard,
        };
        let image = flags.images.kube_conformance_image.filled();
        output::exit_on_signal()?;
        let tests = Tests::fetch(&registries(false)?, image.unwrap_or(&standard), false)
            .and_then(|tests| tests.names())
            .context(
                "--split needs the names of the tests; name a list of them, or a kit, by --tests \
                 FILE",
            )?;
        Ok(Some(Split { parts, tests }))
    }
}

/// Rejects flags that contradict each other, and warns of those that override each other.
fn check_combinations(flags: &RunFlags) -> Result<()> {
    let RunFlags { e2e, images, .. } = flags;
    if flags.is_certified() {
        let retries = e2e.retry_failed.is_some_and(|count| count.value != 0);
        for (flag, is_set, requirement) in [
            ("retry-failed", retries, "pass the first time"),
            ("split", e2e.split.is_some(), "run one after the other"),
        ] {
            if is_set {
                return Err(usage_error(format!(
                    "--{flag}: certified conformance requires tests that {requirement}; leave out \
                     the flag or the mode"
                )));
            }
        }
    }
    let selection = [
        ("e2e-focus", e2e.e2e_focus.is_some()),
        ("e2e-skip", e2e.e2e_skip.is_some()),
        ("mode", e2e.mode.is_some()),
        ("rerun-failed", e2e.rerun_failed.is_some()),
    ];
    if e2e.resume.is_some()
        && let Some((flag, _)) = selection.iter().find(|(_, is_given)| *is_given)
    {
        return Err(usage_error(format!(
            "--{flag} and --resume cannot be used together; leave one out"
        )));
    }
    if images.kube_conformance_image.is_some() && version_flag(flags) != "auto" {
        log::warn!(
            "--kube-conformance-image and the version flags both set the image of the e2e plugin; \
             the last one wins"
        );
    }
    Ok(())
}

/// The configuration file over the defaults, flags over both.
fn configured(flags: &RunFlags, nodes: Option<&NodeFlags>) -> Result<config::Run> {
    let file = &flags.run.config.config;
    let mut overrides = flags.overrides();
    overrides.extend(nodes.map(NodeFlags::overrides).unwrap_or_default());
    for Override {
        setting,
        place,
        value,
    } in &overrides
    {
        // Flags without effect may come first.
        let has_effect = setting.standard().as_ref() != Some(value);
        if has_effect && file.as_ref().is_some_and(|file| *place < file.place) {
            let flag = setting.flag;
            return Err(usage_error(format!(
                "--config comes after --{flag}, which overrides it; write --config before the \
                 other flags"
            )));
        }
    }
    let mut config = read_configuration(file.filled())?;
    if let Some(name) = sys::variable(cluster::NAMESPACE) {
        config.namespace = name;
    }
    for flag in overrides {
        let document = flag
            .setting
            .path
            .rsplit('/')
            .fold(flag.value, |value, key| json!({key: value}));
        config
            .overlay(&document.to_string())
            .map_err(|error| wrong_setting(flag.setting, &error))?;
    }
    if flags.run.timeout.is_some_and(|timeout| timeout.value < 0) {
        return Err(usage_error("--timeout is negative; 0 means no limit"));
    }
    flags.run.redaction.flags.apply(&mut config.redaction)?;
    if flags.run.no_snapshot {
        config.resources = Some(Vec::new());
    }
    Ok(config)
}

/// What makes a flag of its text.
type FlagKind<'a> = fn(&'a str) -> PluginFlag<'a>;

/// A flag that changes plugins, with its value.
#[derive(Clone, Copy)]
enum PluginFlag<'a> {
    Env(&'a str),
    Image(&'a str),
    Mode(&'static Mode),
    Focus(&'a str),
    Skip(&'a str),
    RerunFailed(&'a str),
    Resume(&'a str),
    Parallel(&'a str),
    Repository(&'a str),
    RepositoryConfig(&'a str),
    ConfigMap(&'a str),
    SshKey(&'a str),
    KubernetesVersion(&'a str),
    ConformanceImage(&'a str),
    SystemdLogsImage(&'a str),
    SonobuoyImage(&'a str),
}

/// What changes in plugins.
#[derive(Default)]
struct Changes {
    env: Env,
    edits: Vec<PluginChange>,
}

impl Changes {
    /// Adds the effect of one flag.
    fn apply(&mut self, flag: PluginFlag) -> Result<()> {
        match flag {
            PluginFlag::Env(text) => return self.set_env(text),
            PluginFlag::Image(text) => match text.split_once(':') {
                Some((plugin, name)) if !plugin.is_empty() && !name.is_empty() => {
                    self.set_image(plugin, name);
                }
                _ => return Err(invalid("plugin-image", text, "write PLUGIN:IMAGE")),
            },
            PluginFlag::Mode(mode) => {
                self.select_tests(mode.focus, &mode.skip());
                self.set_e2e(PARALLEL, mode.parallel);
            }
            PluginFlag::Focus(pattern) => self.set_e2e(FOCUS, pattern),
            PluginFlag::Skip(pattern) => self.set_e2e(SKIP, pattern),
            PluginFlag::RerunFailed(archive) => return self.rerun_failed(archive),
            PluginFlag::Resume(archive) => return self.resume(archive),
            PluginFlag::Parallel(text) => self.set_e2e(PARALLEL, text),
            PluginFlag::Repository(registry) => self.set_e2e("KUBE_TEST_REPO", registry),
            // An empty value has no effect.
            PluginFlag::RepositoryConfig("")
            | PluginFlag::ConfigMap("")
            | PluginFlag::SshKey("")
            | PluginFlag::KubernetesVersion("")
            | PluginFlag::ConformanceImage("")
            | PluginFlag::SystemdLogsImage("")
            | PluginFlag::SonobuoyImage("") => {}
            PluginFlag::RepositoryConfig(path) => {
                let name = base_name(path)?;
                self.set_e2e(
                    "KUBE_TEST_REPO_LIST",
                    &format!("{PLUGIN_CONFIG_DIR}/{name}"),
                );
                self.edit_e2e(Edit::File(name, read_text(path)?));
            }
            PluginFlag::ConfigMap(path) => {
                self.edit_e2e(Edit::File(base_name(path)?, read_text(path)?));
            }
            PluginFlag::SshKey(_) => self.edit_e2e(Edit::SshKey),
            PluginFlag::KubernetesVersion(version) => {
                let repository = match version {
                    "latest" => CONFORMANCE_LATEST,
                    _ => CONFORMANCE,
                };
                let image = format!("{repository}:{}", names::VERSION_PLACEHOLDER);
                self.set_image(builtin::E2E, &image);
            }
            PluginFlag::ConformanceImage(image) => {
                check_image("kube-conformance-image", image)?;
                self.set_image(builtin::E2E, image);
            }
            PluginFlag::SystemdLogsImage(image) => {
                check_image("systemd-logs-image", image)?;
                self.set_image(builtin::SYSTEMD_LOGS, image);
            }
            PluginFlag::SonobuoyImage(image) => check_image("sonobuoy-image", image)?,
        }
        Ok(())
    }

    /// `--plugin-env`.
    fn set_env(&mut self, text: &str) -> Result<()> {
        let (plugin, rest) = text.split_once('.').unwrap_or(("", ""));
        let (name, value) = rest.split_once('=').unwrap_or((rest, ""));
        if plugin.is_empty() || plugin.contains('=') || name.is_empty() {
            return Err(invalid(
                "plugin-env",
                text,
                "write PLUGIN.NAME=VALUE, or PLUGIN.NAME to remove it",
            ));
        }
        self.env_of(plugin).insert(name.into(), value.into());
        Ok(())
    }

    /// `--rerun-failed`.
    fn rerun_failed(&mut self, archive: &str) -> Result<()> {
        let names = report::failed(archive).with_context(|| format!("--rerun-failed {archive}"))?;
        ensure!(
            !names.is_empty(),
            "--rerun-failed {archive}: no e2e test failed in this archive"
        );
        let names: Vec<_> = names.iter().map(|name| pattern::quote(name)).collect();
        self.select_tests(&names.join("|"), "");
        Ok(())
    }

    /// `--resume`.
    fn resume(&mut self, archive: &str) -> Result<()> {
        let before = interrupted(archive)?;
        let ran = focus::exactly(before.ran.keys().map(String::as_str)).ok_or_else(|| {
            let count = before.ran.len();
            let reason = format!("{count} tests have run, too many to exclude by name");
            invalid("resume", archive, &reason)
        })?;
        let skip: Vec<_> = [before.skip, ran]
            .into_iter()
            .filter(|skip| !skip.is_empty())
            .collect();
        self.select_tests(&before.focus, &skip.join("|"));
        Ok(())
    }

    fn select_tests(&mut self, focus: &str, skip: &str) {
        self.set_e2e(FOCUS, focus);
        self.set_e2e(SKIP, skip);
    }

    fn env_of(&mut self, plugin: &str) -> &mut BTreeMap<String, String> {
        self.env.entry(plugin.to_owned()).or_default()
    }

    /// Sets a variable of the e2e tests.
    fn set_e2e(&mut self, name: &str, value: &str) {
        self.env_of(builtin::E2E).insert(name.into(), value.into());
    }

    fn set_image(&mut self, plugin: &str, image: &str) {
        self.edits.push(PluginChange {
            plugin: plugin.into(),
            edit: Edit::Image(image.into()),
        });
    }

    /// Adds a change to the e2e tests.
    fn edit_e2e(&mut self, edit: Edit) {
        self.edits.push(PluginChange {
            plugin: builtin::E2E.into(),
            edit,
        });
    }

    /// Leaves out variables of plugins that are selected, but not those `found` for the plan.
    fn leave_out(&mut self, selected: &[Loaded], found: &[Loaded]) {
        let contains = |plugins: &[Loaded], name: &str| {
            plugins
                .iter()
                .any(|plugin| plugin.definition.name() == name)
        };
        self.env
            .retain(|name, _| contains(found, name) || !contains(selected, name));
    }

    /// Points tests to the registry of all other images, unless set otherwise.
    fn use_registry_of_tests(&mut self, registry: &str) {
        const FILE: &str = "registries.yaml";
        const LIST: &str = "KUBE_TEST_REPO_LIST";
        let env = self.env_of(builtin::E2E);
        if env.contains_key(LIST) || env.contains_key("KUBE_TEST_REPO") {
            return;
        }
        self.set_e2e(LIST, &format!("{PLUGIN_CONFIG_DIR}/{FILE}"));
        self.edit_e2e(Edit::File(FILE.into(), kit::repositories(registry)));
    }

    /// Makes the test framework name each test that it runs, unless flags say otherwise. The
    /// framework of versions before v1.25 does not support all of these flags.
    fn name_tests(&mut self, version: &str) {
        const WORDS: [&str; 3] = [
            "-v",
            "--poll-progress-after=1m",
            "--poll-progress-interval=10m",
        ];
        if minor(version).is_none_or(|minor| minor < 25) {
            return;
        }
        let env = self.env_of(builtin::E2E);
        let separator = env
            .get("E2E_EXTRA_ARGS_SEP")
            .filter(|text| !text.is_empty());
        let words = WORDS.join(separator.map_or(" ", String::as_str));
        env.entry("E2E_EXTRA_GINKGO_ARGS".to_owned())
            .or_insert(words);
    }

    /// Registry credentials of the tests, which Kubernetes supports from 1.27 on.
    fn use_docker_config(&mut self, run: &config::Run, version: &str) -> Result<Option<Vec<u8>>> {
        let path = &run.e2e_docker_config_file;
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
        self.edit_e2e(Edit::Credentials(run.image_pull_secrets.clone(), name));
        self.edit_e2e(Edit::Word("E2E_EXTRA_ARGS", word));
        read_text(path).map(|text| Some(text.into_bytes()))
    }
}

/// Rejects the name of an image that a script has made from an unset variable.
fn check_image(flag: &str, image: &str) -> Result<()> {
    if image.starts_with(['/', ':']) {
        return Err(invalid(
            flag,
            image,
            "it names no registry or repository; is a variable unset?",
        ));
    }
    Ok(())
}

/// The error of a setting in the words of its flag.
fn wrong_setting(setting: &Setting, error: &yaml::Error) -> anyhow::Error {
    let flag = setting.flag;
    let path = setting.path.replace('/', ".");
    match error.message.strip_prefix(&format!("`{path}`")) {
        Some(reason) => usage_error(format!("--{flag}{reason}")),
        None => usage_error(format!("--{flag}: {}", error.message)),
    }
}

/// Rejects flags about nodes if any plugin would ignore them: it would run on nodes that the user
/// excluded.
fn check_nodes(flags: Option<&NodeFlags>, plan: &Plan) -> Result<()> {
    let settings = plan.run.nodes.changed_settings();
    if settings.is_empty() {
        return Ok(());
    }
    let mut ignoring = plan.prepared()?;
    ignoring.retain(|plugin| plugin.config.driver != DriverKind::Nodes);
    if ignoring.is_empty() {
        return Ok(());
    }
    let overrides = flags.map(NodeFlags::overrides).unwrap_or_default();
    let setting_in_words = |(flag, key): &(&str, &str)| {
        let is_given = overrides.iter().any(|given| given.setting.flag == *flag);
        match is_given {
            true => format!("--{flag}"),
            false => format!("`{key}` of --config"),
        }
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

/// Rejects marks of nodes by plugins of which none runs on nodes.
fn check_marks(plan: &Plan) -> Result<()> {
    if plan.run.mark_nodes.is_empty() {
        return Ok(());
    }
    let plugins = plan.prepared()?;
    if plugins
        .iter()
        .any(|plugin| plugin.config.driver.is_per_node())
    {
        return Ok(());
    }
    Err(usage_error(format!(
        "--mark-nodes {} needs a plugin that runs on each node (`driver: DaemonSet` or `Nodes`); \
         this run has {}",
        plan.run.mark_nodes,
        plugins
            .iter()
            .map(|plugin| format!("`{}`", plugin.name()))
            .joined(", ")
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

/// Rejects values that the cluster would reject halfway through creating the run; warns of unknown
/// words, since Kubernetes or the aggregator may know them.
fn check_settings(run: &config::Run, purpose: Purpose) -> Result<()> {
    for (setting, value, known) in [
        (
            &PULL_POLICY,
            &run.image_pull_policy,
            &["Always", "IfNotPresent", "Never"][..],
        ),
        (
            &SECURITY_CONTEXT_MODE,
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
        if *setting == PULL_POLICY && purpose.starts_plugins() {
            return Err(invalid(
                setting.flag,
                value,
                &format!("it must be one of {words}{hint}"),
            ));
        }
        log::warn!("--{} `{value}` is not one of {words}{hint}", setting.flag);
    }
    let must_be_valid = purpose.starts_plugins() || !run.namespace.is_empty();
    if must_be_valid && !names::is_label(&run.namespace) {
        return Err(usage_error(format!(
            "`-n {}` is not a valid namespace name: use at most 63 lowercase letters, digits and \
             `-`, not at the ends",
            run.namespace
        )));
    }
    Ok(())
}

fn read_kit(path: &str) -> Result<Kit> {
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

/// The minor number of a version of Kubernetes.
fn minor(version: &str) -> Option<u32> {
    version.split('.').nth(1)?.parse().ok()
}

/// The tests of a kit, or the lines of a list.
pub(super) fn kit_or_list(path: &str) -> Result<Vec<String>> {
    let file = Path::new(path);
    Kit::read(file)?.map_or_else(|| ListSource::File(file).resolve(path), |kit| Ok(kit.tests))
}

/// The names of tests in a list or a kit.
pub(super) fn read_tests(path: &str) -> Result<Vec<String>> {
    let lines = kit_or_list(path)?;
    let names = lines
        .iter()
        .map(|line| listed_test(line).unwrap_or(line).trim().to_owned());
    let names: Vec<_> = names.filter(|name| !name.is_empty()).collect();
    ensure!(!names.is_empty(), "`{path}` lists no tests");
    Ok(names)
}

/// The value of the flag with the version of Kubernetes.
fn version_flag(flags: &RunFlags) -> &str {
    flags.images.kubernetes_version.filled().unwrap_or("auto")
}

/// The Kubernetes version of images. Only `auto` needs a cluster; a command that does not need one
/// otherwise says how to do without.
pub(crate) fn kubernetes_version(
    flag: Option<&str>,
    cluster: &ClusterFlags,
    needs_cluster: bool,
) -> Result<String> {
    match flag.unwrap_or("auto") {
        "auto" => {
            let version = cluster
                .release()
                .context("cannot ask the cluster for its version");
            if needs_cluster {
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

/// A client for image registries.
pub(super) fn registries(plain_http: bool) -> Result<oci::Client> {
    oci::Client::new(names::USER_AGENT, plain_http, &Stop::new())
}
