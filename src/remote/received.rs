//! An archive that came from elsewhere, and the names that it may have here.

use super::partial::PartialFile;
use crate::layout;
use base::sys;

/// The longest name of an archive; what a partial file adds to it still fits into a folder.
const MAX_NAME_BYTES: usize = 200;

/// An archive that is here and not yet under its name, with the name that it was sent under.
pub(super) struct ReceivedArchive {
    pub(super) name: String,
    pub(super) file: PartialFile,
}

/// The name under which an archive may stand in a folder of the user's: nothing that leads elsewhere, that is hidden, or
/// that a shell or a program takes for more than a name. Old aggregators' begin with `./`.
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
