//! Finds plugins in the folders of the search path: all of them for the aggregator, one by name for `-p`.

use std::collections::BTreeSet;
use std::path::{PathBuf, is_separator};

use anyhow::{Result, bail, ensure};

use super::{Definition, Loaded, file};
use base::sys;

/// The user's folder in the original's default search path, and the documented one: both are searched.
const HOME_FOLDERS: [&str; 2] = ["~/sonobuoy/plugins.d", "~/.sonobuoy/plugins.d"];

/// Loads the definitions in `folders`, sorted by name; `selected` names those to run, `None` means all.
///
/// An unreadable file fails the run only if it may contain a selected plugin: once all of them are found elsewhere, it
/// is only logged, as are notes.
pub(crate) fn search(folders: &[String], selected: Option<&[String]>) -> Result<Vec<Definition>> {
    let (mut definitions, mut broken) = (Vec::new(), Vec::new());
    for path in files(folders) {
        match file::load_found(&path) {
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
                let reasons =
                    if broken.is_empty() { String::new() } else { format!(" ({})", broken.join("; ")) };
                bail!("plugin `{name}` is selected but not defined in {}{reasons}", folders.join(", "));
            }
            broken.iter().for_each(|error| log::warn!("{error}; it is not selected"));
        }
    }
    if let Some(pair) = definitions.windows(2).find(|pair| pair[0].name() == pair[1].name()) {
        bail!(
            "two definitions in {} are called `{}`; rename or remove one",
            folders.join(", "),
            pair[0].name()
        );
    }
    Ok(definitions)
}

/// Keeps the selected plugins; `Err` contains a selected name that is missing.
pub(crate) fn select<'s, T>(
    plugins: &mut Vec<T>,
    selected: &'s [String],
    name_of: impl Fn(&T) -> &str,
) -> Result<(), &'s str> {
    let missing =
        selected.iter().find(|name| !plugins.iter().any(|plugin| is_selected(name, name_of(plugin))));
    if let Some(name) = missing {
        return Err(name);
    }
    plugins.retain(|plugin| selected.iter().any(|name| is_selected(name, name_of(plugin))));
    Ok(())
}

/// The first definition in `folders` whose name, or file name, is `name`. Skips unreadable files, which may define
/// other plugins.
pub(super) fn named(folders: &[String], name: &str) -> Option<Loaded> {
    files(folders).into_iter().find_map(|path| {
        let is_file = path.file_stem().is_some_and(|stem| stem == name);
        let mut loaded = file::load_found(&path).ok()?.into_iter();
        loaded.find(|loaded| is_file || is_selected(name, loaded.definition.name()))
    })
}

/// Whether a selection means the plugin of that name: old configurations write `systemd_logs`, now an invalid name.
pub(crate) fn is_selected(selected: &str, name: &str) -> bool {
    selected == name || with_hyphens(selected) == name
}

/// Converts a name to the spelling since v0.10.
pub(super) fn with_hyphens(name: &str) -> String {
    name.replace('_', "-")
}

/// Expands `~` and `$HOME` in a folder of a search path.
pub(super) fn with_home(folder: &str, variable: &dyn Fn(&str) -> Option<String>) -> PathBuf {
    let below = ["~", "$HOME"]
        .iter()
        .find_map(|home| folder.strip_prefix(home))
        .filter(|rest| rest.is_empty() || rest.starts_with(is_separator));
    let home = || sys::homes(variable).into_iter().next();
    match below.and_then(|rest| Some(home()?.join(rest.trim_start_matches(is_separator)))) {
        Some(path) => path,
        None => PathBuf::from(folder),
    }
}

/// Every file with a known extension directly in the folders, once each; skips missing folders. The files of a
/// mounted ConfigMap are links into `..data`.
fn files(folders: &[String]) -> Vec<PathBuf> {
    let mut all = Vec::new();
    let more = |folder: &String| (folder == HOME_FOLDERS[0]).then_some(HOME_FOLDERS[1]);
    for folder in folders.iter().flat_map(|folder| [Some(folder.as_str()), more(folder)]).flatten() {
        all.extend(file::in_folder(&with_home(folder, &sys::variable), &["yaml", "yml"]).unwrap_or_default());
    }
    let mut seen = BTreeSet::new();
    all.retain(|path| seen.insert(path.canonicalize().unwrap_or_else(|_| path.clone())));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plugin(name: &str) -> String {
        format!("sonobuoy-config: {{driver: Job, plugin-name: {name}}}\nspec: {{image: i}}\n")
    }

    fn names(found: &[Definition]) -> Vec<&str> {
        found.iter().map(Definition::name).collect()
    }

    #[test]
    fn folder_may_start_with_a_tilde() {
        let home = sys::homes(&sys::variable).into_iter().next().unwrap_or_default();
        if !home.as_os_str().is_empty() {
            assert_eq!(with_home("~/.sonobuoy/plugins.d", &sys::variable), home.join(".sonobuoy/plugins.d"));
            assert_eq!(with_home("$HOME/x", &sys::variable), home.join("x"));
        }
        for other in ["/a/~/b", "~else/x", "./x", "$HOMEX/y"] {
            assert_eq!(with_home(other, &sys::variable), PathBuf::from(other));
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
        let chosen = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();

        assert_eq!(names(&search(&folders, None).unwrap()), ["a", "b"]);
        assert_eq!(names(&search(&folders, Some(&chosen(&["b"]))).unwrap()), ["b"]);
        assert_eq!(names(&search(&folders, Some(&[])).unwrap()), Vec::<&str>::new());
        let error = search(&folders, Some(&chosen(&["c"]))).err().unwrap().to_string();
        assert!(error.contains("`c` is selected but not defined"), "{error}");

        std::fs::write(root.join("broken.yaml"), "a: b: c").unwrap();
        let found = search(&folders, Some(&chosen(&["a"]))).unwrap();
        assert_eq!(names(&found), ["a"]);
        let error = search(&folders, None).err().unwrap().to_string();
        assert!(error.contains("broken.yaml`, line 1, column 5"), "all shall run, and one cannot: {error}");
        assert!(search(&folders, Some(&chosen(&["c"]))).err().unwrap().to_string().contains("broken.yaml"));

        std::fs::write(root.join("broken.yaml"), plugin("a")).unwrap();
        assert!(search(&folders, None).err().unwrap().to_string().contains("two definitions"));
    }
}
