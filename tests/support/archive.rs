//! Reads the files of a run's archive in a folder.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;

/// The regular files of a gzip tar by name.
pub struct Archive(BTreeMap<String, Vec<u8>>);

impl Archive {
    /// Reads the only archive in `dir`.
    #[track_caller]
    pub fn only_one_in(dir: &Path) -> Self {
        let names: Vec<_> = std::fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.to_string_lossy().ends_with(".tar.gz"))
            .collect();
        assert_eq!(names.len(), 1, "one archive, not {names:?}");
        let file = std::fs::File::open(&names[0]).unwrap();
        let mut tar = tar::Archive::new(flate2::read::MultiGzDecoder::new(file));
        let mut files = BTreeMap::new();
        for entry in tar.entries().unwrap() {
            let mut entry = entry.unwrap();
            if entry.header().entry_type().is_file() {
                let mut content = Vec::new();
                entry.read_to_end(&mut content).unwrap();
                files.insert(
                    entry.path().unwrap().to_string_lossy().into_owned(),
                    content,
                );
            }
        }
        Self(files)
    }

    #[track_caller]
    pub fn text(&self, name: &str) -> String {
        match self.0.get(name) {
            Some(content) => String::from_utf8_lossy(content).into_owned(),
            None => panic!("no `{name}` among {:?}", self.0.keys()),
        }
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// The only name that contains `part`.
    #[track_caller]
    pub fn named(&self, part: &str) -> String {
        let names: Vec<_> = self.names().filter(|name| name.contains(part)).collect();
        assert_eq!(names.len(), 1, "one file with `{part}`, not {names:?}");
        names[0].to_owned()
    }
}
