//! Installed plugins: definitions in the user's folder, `~/.sonobuoy` or `$SONOBUOY_DIR`, used by name.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use super::search::with_home;
use super::{Definition, Loaded, file};
use base::at::At as _;
use base::{sys, temp};

/// Name of the folder in the home directory.
const FOLDER: &str = ".sonobuoy";

/// The folder of installed plugins.
pub(crate) struct Installed {
    folder: PathBuf,
}

impl Installed {
    /// Opens the user's folder for finding plugins by name; `Err` explains if the feature is disabled or the folder
    /// missing.
    pub(crate) fn by_name(variable: &dyn Fn(&str) -> Option<String>) -> Result<Self, String> {
        if !is_on(variable) {
            return Err("plugin installation is switched off by SONOBUOY_PLUGIN_INSTALLATION".into());
        }
        Self::open(variable)
    }

    /// Opens the user's folder, creating it if missing; `Err` explains a failure.
    pub(crate) fn open(variable: &dyn Fn(&str) -> Option<String>) -> Result<Self, String> {
        let folder = folder(variable)?;
        match fs::create_dir(&folder) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && folder.is_dir() => {}
            Err(error) => {
                return Err(format!("cannot create the plugin folder `{}`: {error}", folder.display()));
            }
        }
        Ok(Self { folder })
    }

    /// Usable names, unsorted; a missing folder is not created and has none.
    pub(crate) fn names(variable: &dyn Fn(&str) -> Option<String>) -> Vec<String> {
        let mut names = Vec::new();
        if !is_on(variable) {
            return names;
        }
        for entry in folder(variable).ok().and_then(|folder| fs::read_dir(folder).ok()).into_iter().flatten()
        {
            let name = entry.map(|entry| entry.file_name().into_string());
            if let Ok(Ok(name)) = name
                && let Some(stem) = name.strip_suffix(".yaml")
            {
                names.push(stem.to_owned());
            }
        }
        names
    }

    /// File of a plugin, whether it exists or not.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        let name = if has_yaml_ending(Path::new(name)) { name.to_owned() } else { format!("{name}.yaml") };
        self.folder.join(name)
    }

    /// File of a plugin that `list` shows, possibly in a subfolder.
    fn listed(&self, name: &str) -> Option<PathBuf> {
        let below = name.split('/').all(is_plain);
        below.then(|| self.path(name)).filter(|path| path.is_file())
    }

    /// File of an installed plugin; none for a name that is a path.
    pub(crate) fn find(&self, name: &str) -> Option<PathBuf> {
        is_plain(name).then(|| self.path(name)).filter(|path| path.is_file())
    }

    /// Every installed file by path, with its definition or the reason why it cannot be read.
    pub(crate) fn list(&self) -> Result<Vec<(PathBuf, Result<Loaded>)>> {
        let mut paths = Vec::new();
        collect(&self.folder, &mut paths)?;
        paths.sort();
        Ok(paths.into_iter().map(|path| (path.clone(), load(&path))).collect())
    }

    /// Definition installed under a name.
    pub(crate) fn show(&self, name: &str) -> Result<Loaded> {
        match self.listed(name) {
            Some(path) => load(&path),
            None => bail!("{}", self.missing(name)),
        }
    }

    /// Writes a definition under a name and returns its path; a previous file is replaced atomically.
    pub(crate) fn install(&self, name: &str, definition: &Definition) -> Result<PathBuf> {
        if !is_plain(name) {
            bail!("`{name}` cannot be the name of an installed plugin; use a name without `/`");
        }
        let path = self.path(name);
        temp::write(&path, 0o666, definition.to_full_yaml()).at("cannot write", &path)?;
        Ok(path)
    }

    /// Removes an installed plugin and returns its path.
    pub(crate) fn uninstall(&self, name: &str) -> Result<PathBuf> {
        let Some(path) = self.listed(name) else { bail!("{}", self.missing(name)) };
        fs::remove_file(&path).at("cannot remove", &path)?;
        Ok(path)
    }

    fn missing(&self, name: &str) -> String {
        format!(
            "no plugin `{name}` is installed in `{}`; `sonobuoy plugin list` lists installed plugins",
            self.folder.display()
        )
    }
}

/// The user's folder for installed plugins and other persistent data.
pub(crate) fn folder(variable: &dyn Fn(&str) -> Option<String>) -> Result<PathBuf, String> {
    match variable("SONOBUOY_DIR").filter(|folder| !folder.is_empty()) {
        Some(folder) => Ok(with_home(&folder, variable)),
        None => {
            let home = sys::homes(variable).into_iter().next();
            let home = home.ok_or("no folder for installed plugins; set SONOBUOY_DIR or HOME")?;
            Ok(home.join(FOLDER))
        }
    }
}

/// The switches of the original: the feature's own `false` wins, then its default, which is on.
fn is_on(variable: &dyn Fn(&str) -> Option<String>) -> bool {
    !variable("SONOBUOY_PLUGIN_INSTALLATION").is_some_and(|value| value.eq_ignore_ascii_case("false"))
}

fn is_plain(name: &str) -> bool {
    !name.is_empty() && !name.contains(['/', '\\', '\0']) && name != "." && name != ".."
}

fn has_yaml_ending(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "yaml")
}

/// Every `*.yaml` below a folder; links to folders are not followed, so there can be no loop.
fn collect(folder: &Path, into: &mut Vec<PathBuf>) -> Result<()> {
    let entries = fs::read_dir(folder).at("cannot read the folder", folder)?;
    for entry in entries {
        let entry = entry.at("cannot read the folder", folder)?;
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            collect(&path, into)?;
        } else if has_yaml_ending(&path) {
            into.push(path);
        }
    }
    Ok(())
}

fn load(path: &Path) -> Result<Loaded> {
    file::only(file::load_found(path)?, &path.display().to_string())
}
