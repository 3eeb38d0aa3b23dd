//! Finds plugins for `-p`: installed ones, built-in ones, URLs, folders, files, and names in the search path, in this
//! order.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};

use super::installed::Installed;
use super::search::{self, with_hyphens};
use super::{Loaded, builtin, check_content, check_name_of, file};
use base::at::At as _;
use base::fetch::fetch;
use base::near;
use base::sys;

/// Resolves one `-p VALUE`; `folders` is the search path.
pub(crate) fn find(value: &str, installed: Option<&Installed>, folders: &[String]) -> Result<Vec<Loaded>> {
    let (source, new_name) = split_name(value);
    if value.trim().is_empty() {
        bail!("`-p` is empty: is a variable unset?");
    }
    if source.is_empty() {
        bail!("`-p {value}` does not name a plugin");
    }
    let is_path = source.contains(['/', '\\']);
    if !is_path && let Some(path) = installed.and_then(|installed| installed.find(source)) {
        return custom(file::load(&path)?, value, new_name);
    }
    if let Some(definition) = builtin::named(source).or_else(|| builtin::named(&with_hyphens(source))) {
        if new_name.is_some() {
            bail!(
                "`-p {value}`: the built-in plugin `{source}` cannot be renamed; save `sonobuoy gen plugin {source}` to a file and rename that"
            );
        }
        return Ok(vec![Loaded::built_in(definition)]);
    }
    if is_url(source) {
        return custom(get(source)?, value, new_name);
    }
    let path = Path::new(source);
    if path.is_dir() {
        if new_name.is_some() {
            bail!("`-p {value}`: a folder of plugins cannot be renamed; name one of its files");
        }
        return custom(folder(path)?, value, None);
    }
    if !path.exists() {
        if !is_path && let Some(loaded) = search::named(folders, source) {
            return custom(vec![loaded], value, new_name);
        }
        let ways = if is_path {
            "there is no such file or folder"
        } else {
            "no installed plugin, built-in plugin, file or folder has this name"
        };
        let installed = Installed::names(&sys::variable);
        let here = definitions_here();
        let built_in: Vec<&str> = builtin::names().collect();
        let known = built_in.into_iter().chain(installed.iter().chain(&here).map(String::as_str));
        bail!("plugin `{source}`: {ways}{}", near::hint(source, known));
    }
    custom(file::load(path)?, value, new_name)
}

/// Files of the working directory that may be definitions.
fn definitions_here() -> Vec<String> {
    let entries = fs::read_dir(".").into_iter().flatten();
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter(|name| name.ends_with(".yaml") || name.ends_with(".yml")).collect()
}

/// Reads the only definition in a file or URL.
pub(crate) fn one(source: &str) -> Result<Loaded> {
    let all = if is_url(source) { get(source)? } else { file::load(Path::new(source))? };
    file::only(all, source)
}

/// Splits `SOURCE@NEWNAME`; a file with `@` in its name, and an `@` before the host of a URL, are not split.
fn split_name(value: &str) -> (&str, Option<&str>) {
    match value.rsplit_once('@') {
        Some((source, name)) if !name.contains(['/', ':']) && !Path::new(value).exists() => {
            (source, Some(name).filter(|name| !name.is_empty()))
        }
        _ => (value, None),
    }
}

fn is_url(source: &str) -> bool {
    source.split_once("://").is_some_and(|(scheme, rest)| {
        let letters = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
        !scheme.is_empty() && scheme.chars().all(letters) && !rest.is_empty() && !rest.starts_with('/')
    })
}

fn custom(loaded: Vec<Loaded>, value: &str, new_name: Option<&str>) -> Result<Vec<Loaded>> {
    if new_name.is_some() && loaded.len() != 1 {
        bail!("`-p {value}`: {} definitions cannot all have the same name", loaded.len());
    }
    let renamable = loaded.len() == 1 && !Path::new(value).is_dir();
    loaded
        .into_iter()
        .map(|mut loaded| {
            if let Some(misspelt) = loaded.misspelt.take() {
                bail!("`-p {value}`, {misspelt}");
            }
            let definition = &mut loaded.definition;
            if definition.name() == builtin::E2E && definition.move_to_live_registry() {
                loaded.notes.push(format!(
                    "`-p {value}`: the registry of its image is frozen and lacks later versions; `{}` is used",
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
            named.and_then(|()| check_content(definition)).with_context(|| format!("`-p {value}`"))?;
            Ok(loaded)
        })
        .collect()
}

/// Every `*.yaml` directly in a folder, by name.
fn folder(path: &Path) -> Result<Vec<Loaded>> {
    let files = file::in_folder(path, &["yaml"]).at("cannot read the folder", path)?;
    if files.is_empty() {
        bail!("the folder `{}` contains no *.yaml file, which plugin definitions must be", path.display());
    }
    let mut all = Vec::new();
    for path in files {
        all.extend(file::load_found(&path)?);
    }
    Ok(all)
}

fn get(url: &str) -> Result<Vec<Loaded>> {
    let scheme = url.split("://").next().unwrap_or_default();
    if !matches!(scheme, "http" | "https") {
        bail!("plugin `{url}`: only http and https can be fetched");
    }
    file::parse(&fetch(url, file::MAX_FILE_BYTES)?, url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_are_split_off() {
        for (value, expected) in [
            ("a.yaml@b", ("a.yaml", Some("b"))),
            ("https://host/a.yaml@b", ("https://host/a.yaml", Some("b"))),
            ("https://user:secret@host/a.yaml", ("https://user:secret@host/a.yaml", None)),
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
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let place = folder.display().to_string();
        let says = format!("cannot read `{}`: it is not a regular file", pipe.display());
        for error in [
            find(&place, None, &[]).err(),
            super::super::search::search(std::slice::from_ref(&place), None).err(),
        ] {
            assert_eq!(format!("{:#}", error.unwrap()), says);
        }
        let variable = |name: &str| (name == "SONOBUOY_DIR").then(|| place.clone());
        let listed = Installed::open(&variable).unwrap().list().unwrap();
        let errors = listed.into_iter().map(|(_, loaded)| format!("{:#}", loaded.err().unwrap()));
        assert_eq!(errors.collect::<Vec<_>>(), [says]);
    }
}
