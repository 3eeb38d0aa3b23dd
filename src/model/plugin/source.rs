//! Where definitions come from: plugins installed in the user's folder, built-in ones, standard
//! input, URLs, folders, files, and the search path. Bytes are of bounded size and in UTF-8; every
//! error and note names their origin.
//!
//! The user's folder is `~/.sonobuoy` or `$SONOBUOY_DIR`. The aggregator loads all plugins of the
//! search path, `-p` one by name.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf, is_separator};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use ureq::http::Uri;

use super::{Definition, Loaded, builtin, check_content, check_name_of, read_all};
use base::at::{At as _, entries};
use base::fetch::fetch;
use base::{near, small, sys, temp};

/// Maximum size of a definition; a ConfigMap holds only 1 MiB.
const MAX_FILE_BYTES: u64 = 4 << 20;
/// The value of `-p` for standard input.
pub const STDIN: &str = "-";
/// Name of the user's folder in the home directory.
const FOLDER: &str = ".sonobuoy";
/// The user's folder in the original's default search path, and the documented one: both are
/// searched.
const HOME_FOLDERS: [&str; 2] = ["~/sonobuoy/plugins.d", "~/.sonobuoy/plugins.d"];

/// Resolves one `-p VALUE`; `folders` is the search path.
pub fn find(value: &str, installed: Option<&Installed>, folders: &[String]) -> Result<Vec<Loaded>> {
    let (source, new_name) = split_name(value);
    if source.trim().is_empty() {
        match value.trim() {
            "" => bail!("`-p` is empty: is a variable unset?"),
            value => bail!("`-p {value}` does not name a plugin"),
        }
    }
    let (path, is_path) = (Path::new(source), source.contains(['/', '\\']));
    let loaded = if source == STDIN {
        load_stdin()?
    } else if !is_path && let Some(path) = installed.and_then(|installed| installed.find(source)) {
        load(&path)?
    } else if let Some(definition) =
        builtin::named(source).or_else(|| builtin::named(&with_hyphens(source)))
    {
        if new_name.is_some() {
            bail!(
                "`-p {value}`: the built-in plugin `{source}` cannot be renamed; save `sonobuoy \
                 gen plugin {source}` to a file and rename that"
            );
        }
        return Ok(vec![Loaded::built_in(definition)]);
    } else if is_url(source) {
        get(source)?
    } else if path.is_dir() {
        if new_name.is_some() {
            bail!("`-p {value}`: a folder of plugins cannot be renamed; name one of its files");
        }
        let files = in_folder(path, &["yaml"])?;
        if files.is_empty() {
            bail!(
                "the folder `{source}` contains no *.yaml file, which plugin definitions must be"
            );
        }
        let mut all = Vec::new();
        for path in &files {
            all.extend(load_found(path)?);
        }
        all
    } else if path.exists() {
        load(path)?
    } else if path.is_symlink() {
        bail!("plugin `{source}`: it is a link to a file that does not exist");
    } else if !is_path && let Some(loaded) = named(folders, source) {
        vec![loaded]
    } else if is_path {
        bail!(
            "plugin `{source}`: there is no such file or folder{}",
            similar_names(source)
        );
    } else {
        bail!(
            "plugin `{source}`: no installed plugin, built-in plugin, file or folder has this \
             name{}",
            similar_names(source)
        );
    };
    custom(loaded, value, new_name)
}

/// A hint at plugins and files with similar names.
fn similar_names(source: &str) -> String {
    let installed = Installed::names();
    let files = in_folder(Path::new("."), &["yaml", "yml"]).unwrap_or_default();
    let mut names: Vec<&str> = builtin::names().collect();
    names.extend(installed.iter().map(String::as_str));
    for path in &files {
        names.extend(path.file_name().and_then(OsStr::to_str));
    }
    near::hint(source, names)
}

/// Reads the only definition in a file, a URL or standard input.
pub fn load_only(source: &str) -> Result<Loaded> {
    let all = match source {
        STDIN => load_stdin()?,
        url if is_url(url) => get(url)?,
        path => load(Path::new(path))?,
    };
    only(all, source)
}

/// Splits `SOURCE@NEWNAME`; a file with `@` in its name, and an `@` before the host of a URL, are
/// not split.
fn split_name(value: &str) -> (&str, Option<&str>) {
    match value.rsplit_once('@') {
        Some((source, name)) if !name.contains(['/', ':']) && !Path::new(value).exists() => {
            (source, Some(name).filter(|name| !name.is_empty()))
        }
        _ => (value, None),
    }
}

fn is_url(source: &str) -> bool {
    let uri = source.parse::<Uri>();
    uri.is_ok_and(|uri| uri.scheme().is_some() && uri.host().is_some_and(|host| !host.is_empty()))
}

/// Prepares definitions of a user for a run, under `new_name` if there is only one.
fn custom(mut all: Vec<Loaded>, value: &str, new_name: Option<&str>) -> Result<Vec<Loaded>> {
    if new_name.is_some() && all.len() != 1 {
        bail!(
            "`-p {value}`: {} definitions cannot all have the same name",
            all.len()
        );
    }
    let renamable = all.len() == 1 && !Path::new(value).is_dir();
    for loaded in &mut all {
        if let Some(misspelt) = loaded.misspelt.take() {
            bail!("`-p {value}`, {misspelt}");
        }
        let definition = &mut loaded.definition;
        if definition.name() == builtin::E2E && definition.move_to_live_registry() {
            loaded.notes.push(format!(
                "`-p {value}`: the registry of its image is frozen and lacks later versions; `{}` \
                 is used",
                definition.spec["image"].as_str().unwrap_or_default()
            ));
        }
        if let Some(name) = new_name {
            definition.config.plugin_name = name.to_owned();
        }
        let named = check_name_of(definition).map_err(|error| match split_name(value).0 {
            source if renamable => anyhow!("{error}; rename it, as in `-p {source}@newname`"),
            _ => anyhow!("{error}; change `plugin-name` in its file"),
        });
        named
            .and_then(|()| check_content(definition))
            .with_context(|| format!("`-p {value}`"))?;
    }
    Ok(all)
}

fn get(url: &str) -> Result<Vec<Loaded>> {
    let scheme = url.split("://").next().unwrap_or_default();
    if !matches!(scheme, "http" | "https") {
        bail!("plugin `{url}`: only http and https can be fetched");
    }
    parse(fetch(url, MAX_FILE_BYTES)?, url)
}

/// Loads the definitions that are piped into the program.
fn load_stdin() -> Result<Vec<Loaded>> {
    let stdin = io::stdin();
    if stdin.is_terminal() {
        bail!(
            "`-p {STDIN}` reads a definition from standard input, and that is a terminal; pipe one \
             into it"
        );
    }
    let name = "standard input";
    let bytes = small::read_from(stdin.lock(), MAX_FILE_BYTES).at("cannot read", name)?;
    parse(bytes, name)
}

/// Loads the definitions of a file given by the user, which may be a pipe.
fn load(path: &Path) -> Result<Vec<Loaded>> {
    load_with(small::read, path)
}

/// Loads the definitions of a file found in a folder; rejects pipes, which may never have a writer.
fn load_found(path: &Path) -> Result<Vec<Loaded>> {
    load_with(small::read_regular, path)
}

fn load_with(read: impl Fn(&Path, u64) -> io::Result<Vec<u8>>, path: &Path) -> Result<Vec<Loaded>> {
    parse(
        read(path, MAX_FILE_BYTES).at("cannot read", path)?,
        &path.display().to_string(),
    )
}

/// Parses the definitions of a text.
fn parse(bytes: Vec<u8>, origin: &str) -> Result<Vec<Loaded>> {
    let text = small::text(bytes).at("cannot read", origin)?;
    let mut all =
        read_all(&text).map_err(|error| anyhow!("plugin definition `{origin}`, {error}"))?;
    for note in all.iter_mut().flat_map(|loaded| &mut loaded.notes) {
        *note = format!("`{origin}`: {note}");
    }
    Ok(all)
}

/// Returns the only definition; rejects several.
fn only(mut all: Vec<Loaded>, origin: &str) -> Result<Loaded> {
    match (all.pop(), all.len()) {
        (Some(loaded), 0) => Ok(loaded),
        (_, more) => bail!("`{origin}` must contain one definition, not {}", more + 1),
    }
}

/// The files directly in a folder with one of these extensions, sorted.
fn in_folder(folder: &Path, endings: &[&str]) -> Result<Vec<PathBuf>> {
    let mut files: Vec<_> = entries(folder)?.iter().map(fs::DirEntry::path).collect();
    files.retain(|path| endings.iter().any(|ending| has_ending(path, ending)) && !path.is_dir());
    Ok(files)
}

fn has_ending(path: &Path, ending: &str) -> bool {
    path.extension().is_some_and(|end| end == ending)
}

/// Loads the definitions in `folders`, sorted by name; `selected` names those to run, `None` means
/// all.
///
/// An unreadable file fails the run only if it may contain a selected plugin: once all of them are
/// found elsewhere, it is only logged, as are notes.
pub fn search(folders: &[String], selected: Option<&[String]>) -> Result<Vec<Definition>> {
    let (mut definitions, mut broken) = (Vec::new(), Vec::new());
    for path in files(folders) {
        match load_found(&path) {
            Ok(all) => definitions.extend(all.into_iter().map(|loaded| {
                loaded.notes.iter().for_each(|note| log::info!("{note}"));
                loaded.definition
            })),
            Err(error) => broken.push(format!("{error:#}")),
        }
    }
    definitions.sort_by(|a, b| a.name().cmp(b.name()));
    match selected {
        None => ensure!(broken.is_empty(), "{}", broken.join("; ")),
        Some(names) => {
            if let Err(name) = select(&mut definitions, names, Definition::name) {
                let reasons = if broken.is_empty() {
                    String::new()
                } else {
                    format!(" ({})", broken.join("; "))
                };
                bail!(
                    "plugin `{name}` is selected but not defined in {}{reasons}",
                    folders.join(", ")
                );
            }
            broken
                .iter()
                .for_each(|error| log::warn!("{error}; it is not selected"));
        }
    }
    if let Some(pair) = definitions
        .windows(2)
        .find(|pair| pair[0].name() == pair[1].name())
    {
        bail!(
            "two definitions in {} are called `{}`; rename or remove one",
            folders.join(", "),
            pair[0].name()
        );
    }
    Ok(definitions)
}

/// Keeps the selected plugins; `Err` contains a selected name that is missing.
pub fn select<'s, T>(
    plugins: &mut Vec<T>,
    selected: &'s [String],
    name_of: impl Fn(&T) -> &str,
) -> Result<(), &'s str> {
    let is_meant = |name: &str, plugin: &T| is_selected(name, name_of(plugin));
    let missing = selected
        .iter()
        .find(|name| !plugins.iter().any(|plugin| is_meant(name, plugin)));
    plugins.retain(|plugin| selected.iter().any(|name| is_meant(name, plugin)));
    match missing {
        Some(name) => Err(name),
        None => Ok(()),
    }
}

/// The first definition in `folders` whose name, or file name, is `name`. Skips unreadable files,
/// which may define other plugins.
fn named(folders: &[String], name: &str) -> Option<Loaded> {
    files(folders).into_iter().find_map(|path| {
        let is_file = path.file_stem().is_some_and(|stem| stem == name);
        let mut loaded = load_found(&path).ok()?.into_iter();
        loaded.find(|loaded| is_file || is_selected(name, loaded.definition.name()))
    })
}

/// Whether a selection means the plugin of that name: old configurations write `systemd_logs`, now
/// an invalid name.
pub fn is_selected(selected: &str, name: &str) -> bool {
    selected == name || with_hyphens(selected) == name
}

/// Converts a name to the spelling since v0.10.
fn with_hyphens(name: &str) -> String {
    name.replace('_', "-")
}

/// Every file with a known extension directly in the folders, once each; skips missing folders. The
/// files of a mounted ConfigMap are links into `..data`.
fn files(folders: &[String]) -> Vec<PathBuf> {
    let mut searched = Vec::new();
    for folder in folders {
        searched.push(folder.as_str());
        if folder == HOME_FOLDERS[0] {
            searched.push(HOME_FOLDERS[1]);
        }
    }
    let mut files = Vec::new();
    let mut canonical_paths = BTreeSet::new();
    for folder in searched {
        for path in in_folder(&with_home(folder), &["yaml", "yml"]).unwrap_or_default() {
            let canonical = path.canonicalize().unwrap_or_else(|_| path.clone());
            if canonical_paths.insert(canonical) {
                files.push(path);
            }
        }
    }
    files
}

fn home_folder() -> Option<PathBuf> {
    sys::homes(&sys::variable).into_iter().next()
}

/// Expands `~` and `$HOME` in a folder of a search path.
fn with_home(folder: &str) -> PathBuf {
    for home in ["~", "$HOME"] {
        // Not `~user`, which only a shell expands.
        if let Some(rest) = folder.strip_prefix(home)
            && (rest.is_empty() || rest.starts_with(is_separator))
            && let Some(home_folder) = home_folder()
        {
            return home_folder.join(rest.trim_start_matches(is_separator));
        }
    }
    folder.into()
}

/// The user's folder for installed plugins and other persistent data.
pub fn user_folder() -> Result<PathBuf> {
    match sys::variable("SONOBUOY_DIR") {
        Some(folder) => Ok(with_home(&folder)),
        None => {
            let home = home_folder()
                .context("no folder for installed plugins; set SONOBUOY_DIR or HOME")?;
            Ok(home.join(FOLDER))
        }
    }
}

/// The folder of installed plugins.
pub struct Installed {
    folder: PathBuf,
}

impl Installed {
    /// The user's folder for finding plugins by name; none if the feature is disabled or the folder
    /// cannot be used.
    pub fn by_name() -> Option<Self> {
        Self::is_on().then(Self::open)?.ok()
    }

    /// Opens the user's folder, creating it, but not its parents, if missing.
    pub fn open() -> Result<Self> {
        let folder = user_folder()?;
        // It also contains the authorities that archives are verified with.
        match sys::dir_builder(0o700).create(&folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => {}
            created => created.at("cannot create the plugin folder", &folder)?,
        }
        Ok(Self { folder })
    }

    /// Usable names; a missing folder is not created and has none.
    pub fn names() -> Vec<String> {
        let folder = user_folder().ok().filter(|_| Self::is_on());
        folder
            .and_then(|folder| in_folder(&folder, &["yaml"]).ok())
            .unwrap_or_default()
            .iter()
            .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
            .collect()
    }

    /// The switch of the original.
    fn is_on() -> bool {
        !sys::variable("SONOBUOY_PLUGIN_INSTALLATION")
            .is_some_and(|value| value.eq_ignore_ascii_case("false"))
    }

    /// File of a plugin, whether it exists or not.
    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(format!(
            "{}.yaml",
            name.strip_suffix(".yaml").unwrap_or(name)
        ))
    }

    /// File of an installed plugin, possibly in a subfolder.
    fn find(&self, name: &str) -> Option<PathBuf> {
        name.split('/')
            .all(is_plain)
            .then(|| self.path(name))
            .filter(|path| path.is_file())
    }

    fn existing(&self, name: &str) -> Result<PathBuf> {
        self.find(name).with_context(|| {
            format!(
                "no plugin `{name}` is installed in `{}`; `sonobuoy plugin list` lists all plugins",
                self.folder.display()
            )
        })
    }

    /// Every installed file by path, with its definition or the reason why it cannot be read.
    pub fn list(&self) -> Result<Vec<(PathBuf, Result<Loaded>)>> {
        let mut paths = Vec::new();
        collect(&self.folder, &mut paths)?;
        Ok(paths
            .into_iter()
            .map(|path| (path.clone(), load_installed(&path)))
            .collect())
    }

    /// Definition that a name means: an installed one, else a built-in one.
    pub fn show(&self, name: &str) -> Result<Loaded> {
        if self.find(name).is_none()
            && let Some(definition) = builtin::named(name)
        {
            return Ok(Loaded::built_in(definition));
        }
        load_installed(&self.existing(name)?)
    }

    /// Writes a definition under a name and returns its path; a previous file is replaced
    /// atomically.
    pub fn install(&self, name: &str, definition: &Definition) -> Result<PathBuf> {
        if !is_plain(name) {
            bail!("`{name}` cannot be the name of an installed plugin; use a name without `/`");
        }
        let path = self.path(name);
        temp::write(&path, 0o666, definition.to_full_yaml()).at("cannot write", &path)?;
        Ok(path)
    }

    /// Removes an installed plugin and returns its path.
    pub fn uninstall(&self, name: &str) -> Result<PathBuf> {
        if self.find(name).is_none() && builtin::named(name).is_some() {
            bail!("the plugin `{name}` is built in, so it cannot be removed");
        }
        let path = self.existing(name)?;
        fs::remove_file(&path).at("cannot remove", &path)?;
        Ok(path)
    }
}

fn load_installed(path: &Path) -> Result<Loaded> {
    only(load_found(path)?, &path.display().to_string())
}

fn is_plain(name: &str) -> bool {
    !name.is_empty() && !name.contains(['/', '\\', '\0']) && name != "." && name != ".."
}

/// Every `*.yaml` below a folder; links to folders are not followed, so there can be no loop.
fn collect(folder: &Path, into: &mut Vec<PathBuf>) -> Result<()> {
    for entry in entries(folder)? {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            collect(&entry.path(), into)?;
        } else if has_ending(&entry.path(), "yaml") {
            into.push(entry.path());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_are_split_off() {
        for (value, expected) in [
            ("a.yaml@b", ("a.yaml", Some("b"))),
            ("https://host/a.yaml@b", ("https://host/a.yaml", Some("b"))),
            (
                "https://user:secret@host/a.yaml",
                ("https://user:secret@host/a.yaml", None),
            ),
            ("https://user@host:1", ("https://user@host:1", None)),
            ("dir@2/a.yaml", ("dir@2/a.yaml", None)),
            ("e2e", ("e2e", None)),
            ("a.yaml@", ("a.yaml", None)),
            ("@b", ("", Some("b"))),
        ] {
            assert_eq!(split_name(value), expected, "{value}");
        }
    }

    #[test]
    fn urls_have_a_scheme_and_a_host() {
        for (source, expected) in [
            ("https://host/a", true),
            ("http://h", true),
            ("ftp://h/x", true),
            ("https://", false),
            ("file:///a", false),
            ("a.yaml", false),
            ("C:\\a.yaml", false),
        ] {
            assert_eq!(is_url(source), expected, "{source}");
        }
    }

    #[test]
    #[cfg(unix)]
    fn pipe_in_a_folder_is_named_without_blocking() {
        let folder = base::temp::Folder::new().unwrap();
        let pipe = folder.join("pipe.yaml");
        assert!(
            std::process::Command::new("mkfifo")
                .arg(&pipe)
                .status()
                .unwrap()
                .success()
        );
        let place = folder.display().to_string();
        let says = format!("cannot read `{}`: it is not a regular file", pipe.display());
        for error in [
            find(&place, None, &[]).err(),
            search(std::slice::from_ref(&place), None).err(),
        ] {
            assert_eq!(format!("{:#}", error.unwrap()), says);
        }
        let listed = Installed {
            folder: folder.to_owned(),
        }
        .list()
        .unwrap();
        let errors = listed
            .into_iter()
            .map(|(_, loaded)| format!("{:#}", loaded.err().unwrap()));
        assert_eq!(errors.collect::<Vec<_>>(), [says]);
    }

    fn plugin(name: &str) -> String {
        format!("sonobuoy-config: {{driver: Job, plugin-name: {name}}}\nspec: {{image: i}}\n")
    }

    fn names(found: &[Definition]) -> Vec<&str> {
        found.iter().map(Definition::name).collect()
    }

    #[test]
    fn folder_may_start_with_a_tilde() {
        let home = home_folder().unwrap_or_default();
        if !home.as_os_str().is_empty() {
            assert_eq!(
                with_home("~/.sonobuoy/plugins.d"),
                home.join(".sonobuoy/plugins.d")
            );
            assert_eq!(with_home("$HOME/x"), home.join("x"));
        }
        for other in ["/a/~/b", "~else/x", "./x", "$HOMEX/y"] {
            assert_eq!(with_home(other), PathBuf::from(other));
        }
    }

    #[test]
    fn selection_decides_which_broken_files_matter() {
        let root = base::temp::Folder::new().unwrap();
        let mounted = root.join("..2026");
        std::fs::create_dir_all(&mounted).unwrap();
        std::fs::create_dir_all(root.join("folder.yaml")).unwrap();
        std::fs::write(mounted.join("plugin-0.yaml"), plugin("b")).unwrap();
        std::fs::write(mounted.join("plugin-1.yml"), plugin("a")).unwrap();
        std::fs::write(root.join("note.txt"), "[").unwrap();
        for name in ["plugin-0.yaml", "plugin-1.yml"] {
            base::sys::symlink(&mounted.join(name), &root.join(name)).unwrap();
        }
        base::sys::symlink(&mounted, &root.join("..data")).unwrap();
        let path = root.display().to_string();
        let folders = ["/nonexistent".to_owned(), path.clone(), path];
        // Old configurations have underscores.
        let old = plugin("new-name");
        std::fs::write(root.join("old.yaml"), old).unwrap();
        let found = search(&folders, Some(&["new_name".to_owned()])).unwrap();
        assert_eq!(names(&found), ["new-name"]);
        std::fs::remove_file(root.join("old.yaml")).unwrap();
        let chosen = |names: &[&str]| {
            names
                .iter()
                .map(|name| (*name).to_owned())
                .collect::<Vec<_>>()
        };

        assert_eq!(names(&search(&folders, None).unwrap()), ["a", "b"]);
        assert_eq!(
            names(&search(&folders, Some(&chosen(&["b"]))).unwrap()),
            ["b"]
        );
        assert_eq!(
            names(&search(&folders, Some(&[])).unwrap()),
            Vec::<&str>::new()
        );
        let error = search(&folders, Some(&chosen(&["c"])))
            .err()
            .unwrap()
            .to_string();
        assert!(error.contains("`c` is selected but not defined"), "{error}");

        std::fs::write(root.join("broken.yaml"), "a: b: c").unwrap();
        let found = search(&folders, Some(&chosen(&["a"]))).unwrap();
        assert_eq!(names(&found), ["a"]);
        let error = search(&folders, None).err().unwrap().to_string();
        assert!(
            error.contains("broken.yaml`, line 1, column 5"),
            "all shall run, and one cannot: {error}"
        );
        assert!(
            search(&folders, Some(&chosen(&["c"])))
                .err()
                .unwrap()
                .to_string()
                .contains("broken.yaml")
        );

        std::fs::write(root.join("broken.yaml"), plugin("a")).unwrap();
        assert!(
            search(&folders, None)
                .err()
                .unwrap()
                .to_string()
                .contains("two definitions")
        );
    }
}
