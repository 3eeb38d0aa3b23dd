//! A received archive, and the names that it may have locally.

use super::partial::PartialFile;
use crate::layout;
use base::sys;

/// Maximum length of an archive's name, leaving space for the suffix of a partial file.
const MAX_NAME_BYTES: usize = 200;

/// A complete archive before its rename, with the name that the sender gave.
pub(super) struct ReceivedArchive {
    pub(super) name: String,
    pub(super) file: PartialFile,
}

/// Safe local name of an archive: no path, not hidden, nothing that a shell or a program interprets. Names from old
/// aggregators start with `./`.
pub(super) fn archive_name(sent: &str) -> Option<&str> {
    let name = sent.strip_prefix("./").unwrap_or(sent);
    let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-+".contains(&byte));
    let first = name.starts_with(|first: char| first.is_ascii_alphanumeric());
    let fits = name.len() <= MAX_NAME_BYTES && name.ends_with(layout::ARCHIVE) && sys::can_have(name);
    (plain && first && fits).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_has_a_plain_name_or_none() {
        let uuid = "202401010000_sonobuoy_11111111-2222-4333-8444-555555555555.tar.gz";
        for name in [uuid, "a.tar.gz", "A+b_1.tar.gz"] {
            assert_eq!(archive_name(name), Some(name));
            assert_eq!(archive_name(&format!("./{name}")), Some(name));
        }
        for name in [
            "",
            ".tar.gz",
            ".bashrc",
            ".a.tar.gz",
            "a.tgz",
            "a.tar.gz.sig",
            "authorized_keys",
            "../a.tar.gz",
            "/a.tar.gz",
            "b/a.tar.gz",
            "././a.tar.gz",
            "b\\a.tar.gz",
            "c:a.tar.gz",
            "-a.tar.gz",
            "a b.tar.gz",
            "a\n.tar.gz",
            "a\0.tar.gz",
            "$(a).tar.gz",
            "\u{202e}.tar.gz",
            "\u{e9}.tar.gz",
        ] {
            assert_eq!(archive_name(name), None, "{name:?}");
        }
        assert_eq!(archive_name(&format!("{}.tar.gz", "a".repeat(300))), None);
    }
}
