//! Round trips, and hostile archives written header by header.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::path::Path;

use super::*;
use crate::sys::{self, symlink};

/// A temporary folder.
struct Folder(crate::temp::Folder);

impl Folder {
    fn new() -> Self {
        Self(crate::temp::Folder::new().unwrap())
    }
}

fn gzip(data: &[u8]) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    out.write_all(data).unwrap();
    out.finish().unwrap()
}

/// A raw entry.
fn entry(name: &str, kind: u8, mode: u32, target: &str, data: &[u8]) -> Vec<u8> {
    let mut header = tar::Header::new_gnu();
    header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
    header.as_old_mut().linkname[..target.len()].copy_from_slice(target.as_bytes());
    header.set_entry_type(tar::EntryType::new(kind));
    header.set_mode(mode);
    header.set_size(data.len() as u64);
    header.set_cksum();
    let mut out = [header.as_bytes(), data].concat();
    out.resize(out.len().next_multiple_of(512), 0);
    out
}

fn file(name: &str, data: &str) -> Vec<u8> {
    entry(name, b'0', 0o644, "", data.as_bytes())
}

/// Everything below `dir`: files with content, folders as `/`, links as `-> target`.
fn tree(dir: &Path) -> BTreeMap<String, String> {
    fn walk(top: &Path, dir: &Path, out: &mut BTreeMap<String, String>) {
        for item in fs::read_dir(dir).unwrap() {
            let path = item.unwrap().path();
            let name = path
                .strip_prefix(top)
                .unwrap()
                .to_string_lossy()
                .replace('\\', "/");
            let meta = fs::symlink_metadata(&path).unwrap();
            if meta.is_dir() {
                out.insert(name, "/".into());
                walk(top, &path, out);
            } else if meta.is_symlink() {
                out.insert(
                    name,
                    format!("-> {}", fs::read_link(&path).unwrap().display()),
                );
            } else {
                out.insert(
                    name,
                    String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned(),
                );
            }
        }
    }
    let mut out = BTreeMap::new();
    walk(dir, dir, &mut out);
    out
}

/// Gzips and unpacks `tar` and compares the folder with `expected`, words of `name=content`.
fn check(case: &str, tar: &[Vec<u8>], expected: &[(&str, &str)], skipped: u64) {
    let outer = Folder::new();
    let dir = outer.0.join("in");
    fs::create_dir(&dir).unwrap();
    let done = unpack(&gzip(&tar.concat())[..], &dir, &Limits::default())
        .unwrap_or_else(|e| panic!("{case}: {e}"));
    let expected: BTreeMap<_, _> = expected
        .iter()
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
        .collect();
    assert_eq!(tree(&dir), expected, "{case}");
    assert_eq!(done.dropped.entries, skipped, "{case}");
    assert_eq!(
        tree(&outer.0).len(),
        expected.len() + 1,
        "{case}: files outside the folder"
    );
}

/// Whether symbolic links work: Windows restricts them, and wine only pretends.
fn makes_links() -> bool {
    let folder = Folder::new();
    let link = folder.0.join("link");
    symlink(Path::new("nowhere"), &link).is_ok() && link.is_symlink()
}

/// Unpacks `archive`, which must be rejected with a reason that contains `words`.
fn refused(case: &str, archive: &[u8], limits: &Limits, words: &str) {
    let dir = Folder::new();
    let error = unpack(archive, &dir.0, limits).expect_err(case);
    assert!(error.to_string().contains(words), "{case}: {error}");
}

#[test]
fn packed_folder_is_unpacked_completely() {
    let from = Folder::new();
    let long = format!("{}/{}", "d".repeat(120), "f".repeat(200));
    fs::create_dir_all(from.0.join("b/empty")).unwrap();
    fs::create_dir_all(from.0.join(&long).parent().unwrap()).unwrap();
    for (name, text) in [
        ("b/one", "1"),
        ("a.txt", "text"),
        ("done", ""),
        (&long, "long"),
        ("b/ä ö", "umlaut"),
    ] {
        fs::write(from.0.join(name), text).unwrap();
    }
    sys::set_mode(&from.0.join("b/one"), 0o4555).unwrap();
    let expected = tree(&from.0);
    // Packed, but not unpacked. Some systems restrict links.
    let links = u64::from(symlink(Path::new("/etc/passwd"), &from.0.join("link")).is_ok());
    let packed = pack(&from.0, Vec::new()).unwrap();

    let to = Folder::new();
    let done = unpack(&packed[..], &to.0, &Limits::default()).unwrap();
    assert_eq!(tree(&to.0), expected);
    let files = expected
        .values()
        .filter(|content| *content != "/" && !content.starts_with("-> "))
        .count();
    assert_eq!((files, done.dropped.entries), (5, links));
    let mode = sys::mode(&fs::metadata(to.0.join("b/one")).unwrap());
    let bare = sys::mode(&fs::metadata(to.0.join("a.txt")).unwrap());
    assert_eq!(
        mode,
        if cfg!(unix) { 0o755 } else { bare },
        "no set-user-id bit, writable for a second try"
    );
}

#[test]
fn names_are_those_of_the_original() {
    let from = Folder::new();
    fs::create_dir_all(from.0.join("sub/deep")).unwrap();
    for name in ["b", "sub/x", "sub.txt", "a"] {
        fs::write(from.0.join(name), "").unwrap();
    }
    let mut reader = Reader::new(
        std::io::Cursor::new(pack(&from.0, Vec::new()).unwrap()),
        Limits::default(),
    );
    assert!(
        matches!(reader.next_entry(), Err(Error::Malformed(_))),
        "it is compressed"
    );
    let packed = pack(&from.0, Vec::new()).unwrap();
    let mut reader = Reader::new(Gunzip::new(&packed[..]), Limits::default());
    let mut names = Vec::new();
    while let Some(entry) = reader.next_entry().unwrap() {
        names.push(String::from_utf8(entry.name).unwrap());
    }
    assert_eq!(names, ["a", "b", "sub", "sub/deep", "sub/x", "sub.txt"]);
}

#[test]
fn unusual_valid_archives_unpack() {
    check(
        "dot",
        &[entry("./", b'5', 0o000, "", b""), file("./a", "1")],
        &[("a", "1")],
        0,
    );
    check(
        "no folders listed",
        &[file("a/b/c", "1")],
        &[("a", "/"), ("a/b", "/"), ("a/b/c", "1")],
        0,
    );
    check(
        "absolute names",
        &[file("/tmp/a", "1")],
        &[("tmp", "/"), ("tmp/a", "1")],
        0,
    );
    check("harmless dots", &[file("a/../b", "1")], &[("b", "1")], 0);
    check(
        "the last one wins",
        &[file("a", "long one"), file("a", "2")],
        &[("a", "2")],
        0,
    );
    check(
        "locked folder",
        &[entry("d", b'5', 0, "", b""), file("d/a", "1")],
        &[("d", "/"), ("d/a", "1")],
        0,
    );
    check(
        "oldest dialect",
        &[
            entry("d/", 0, 0o755, "", b""),
            entry("a", 0, 0o644, "", b"1"),
        ],
        &[("d", "/"), ("a", "1")],
        0,
    );
    check("no end marker, nothing inside", &[], &[], 0);
    let pax = entry("x", b'x', 0o644, "", b"18 path=deep/name\n");
    check(
        "extended header",
        &[pax, file("short", "1")],
        &[("deep", "/"), ("deep/name", "1")],
        0,
    );
    let links = [
        entry("l", b'2', 0o777, "k", b""),
        entry("k", b'2', 0o777, "a", b""),
        file("a", "1"),
    ];
    if makes_links() {
        check(
            "links inside",
            &links,
            &[("a", "1"), ("k", "-> a"), ("l", "-> k")],
            0,
        );
    }
}

#[test]
fn invalid_or_equal_names_lose_no_file() {
    let probe = Folder::new();
    fs::write(probe.0.join("case"), "").unwrap();
    let blind = probe.0.join("CASE").exists();
    let other = if blind { "A/B~1" } else { "A/B" };
    let entries = [file("a/b", "1"), file("a/B", "2"), file("a/b", "3")];
    let expected = [
        ("a", "/"),
        ("a/b", "3"),
        (if blind { "a/B~1" } else { "a/B" }, "2"),
    ];
    check("case of files", &entries, &expected, 0);
    let dir = Folder::new();
    let tar = [file("a/b", "1"), file("A/B", "2")].concat();
    unpack(&gzip(&tar)[..], &dir.0, &Limits::default()).unwrap();
    assert_eq!(fs::read(dir.0.join("a/b")).unwrap(), b"1");
    assert_eq!(fs::read(dir.0.join(other)).unwrap(), b"2");

    let (colon, device, dot) = if cfg!(windows) {
        ("12%3A30.log", "%63on.txt", "end%2E")
    } else {
        ("12:30.log", "con.txt", "end.")
    };
    let odd = [
        file("12:30.log", "1"),
        file("con.txt", "2"),
        file("end.", "3"),
        file("d:/x", "4"),
    ];
    let folder = if cfg!(windows) { "d%3A" } else { "d:" };
    let inner = format!("{folder}/x");
    check(
        "odd names",
        &odd,
        &[
            (colon, "1"),
            (device, "2"),
            (dot, "3"),
            (folder, "/"),
            (&inner, "4"),
        ],
        0,
    );
    let deep = vec!["d".repeat(50); 8].join("/");
    let pax = format!("{} path={deep}/f\n", deep.len() + 12);
    let entries = [
        entry("x", b'x', 0o644, "", pax.as_bytes()),
        file("short", "1"),
    ];
    let dir = Folder::new();
    unpack(&gzip(&entries.concat())[..], &dir.0, &Limits::default()).unwrap();
    assert_eq!(
        tree(&dir.0).get(&format!("{deep}/f")).map(String::as_str),
        Some("1"),
        "beyond 260 characters"
    );
}

#[test]
fn unpacking_stays_in_the_folder() {
    check(
        "climbing",
        &[file("../x", "1"), file("a/../../x", "1"), file("ok", "1")],
        &[("ok", "1")],
        2,
    );
    check(
        "climbing folder",
        &[entry("../d", b'5', 0o755, "", b"")],
        &[],
        1,
    );
    for target in ["/etc", "..", "../..", "a/../../x"] {
        let through = [entry("l", b'2', 0o777, target, b""), file("l/x", "1")];
        check(
            &format!("link to {target}"),
            &through,
            &[("l", "/"), ("l/x", "1")],
            1,
        );
    }
    let chain = [
        entry("d/l", b'2', 0o777, "..", b""),
        entry("x", b'2', 0o777, "d/l/..", b""),
        file("d/y", "1"),
    ];
    if makes_links() {
        check(
            "a chain of links",
            &chain,
            &[("d", "/"), ("d/l", "-> .."), ("d/y", "1")],
            1,
        );
    }
    let special = [
        entry("h", b'1', 0o644, "/etc/passwd", b""),
        entry("c", b'3', 0o644, "", b""),
        entry("b", b'4', 0o644, "", b""),
        entry("p", b'6', 0o644, "", b""),
    ];
    check("special files", &special, &[], 4);
}

#[test]
fn missing_folder_is_created() {
    let outer = Folder::new();
    let into = outer.0.join("deep/in");
    for tar in [entry("d", b'5', 0o755, "", b""), file("f", "1")] {
        unpack(&gzip(&tar)[..], &into, &Limits::default()).unwrap();
    }
    assert_eq!(tree(&into).into_keys().collect::<Vec<_>>(), ["d", "f"]);
}

#[test]
fn hard_links_become_copies_within_the_limits() {
    let link = |name: &str, target: &str| entry(name, b'1', 0o644, target, b"");
    let entries = [
        file("a", "1"),
        link("b", "a"),
        link("d/c", "./b"),
        link("a", "a"),
        link("e", "none"),
    ];
    let expected = [("a", "1"), ("b", "1"), ("d", "/"), ("d/c", "1")];
    check("copies", &entries, &expected, 2);
    check(
        "of a folder",
        &[entry("d", b'5', 0o755, "", b""), link("l", "d")],
        &[("d", "/")],
        1,
    );
    let replaced = [
        file("a", "1"),
        file("b", "old"),
        link("b", "a"),
        file("a", "2"),
    ];
    check(
        "the content at that moment",
        &replaced,
        &[("a", "2"), ("b", "1")],
        0,
    );
    let tar = gzip(&[file("a", &"x".repeat(60)), link("b", "a")].concat());
    refused(
        "sum of copies",
        &tar,
        &Limits {
            entries: 9,
            total: 100,
            file: 60,
        },
        "more than 100 bytes",
    );
    let dir = Folder::new();
    let asked = std::cell::RefCell::new(Vec::new());
    let room = |bytes| {
        asked.borrow_mut().push(bytes);
        true
    };
    unpack_within(&tar[..], &dir.0, &Limits::default(), room).unwrap();
    assert_eq!(*asked.borrow(), [60, 60], "space is claimed for a copy");
}

#[test]
fn dropped_entries_are_counted_and_the_first_named() {
    let pipes = (0..7).map(|number| entry(&format!("p{number}"), b'6', 0o644, "", b""));
    let dir = Folder::new();
    let tar = gzip(&pipes.collect::<Vec<_>>().concat());
    let dropped = unpack(&tar[..], &dir.0, &Limits::default())
        .unwrap()
        .dropped;
    assert_eq!((dropped.entries, dropped.first.len()), (7, 5));
    let text = dropped.to_string();
    let start =
        "7 entries of the result could not be kept: `p0`: it is a device, a pipe or a socket; `p1`";
    assert!(
        text.starts_with(start) && text.ends_with("; and 2 more"),
        "{text}"
    );
    let one = Dropped {
        entries: 1,
        first: vec!["`x`: why".into()],
    };
    assert_eq!(
        one.to_string(),
        "1 entry of the result could not be kept: `x`: why"
    );
}

#[test]
fn digest_is_that_of_the_unpacked_folder() {
    let mut entries = vec![
        file("a/b", "old"),
        file("a/b", "new"),
        entry("d", b'5', 0o700, "", b""),
        entry("d", b'5', 0o755, "", b""),
        entry("h", b'1', 0o644, "a/b", b""),
        file("a/../e/f", ""),
    ];
    if makes_links() {
        entries.push(entry("l", b'2', 0o777, "a/b", b""));
    }
    let dir = Folder::new();
    let done = unpack(&gzip(&entries.concat())[..], &dir.0, &Limits::default()).unwrap();
    assert_eq!(done.dropped, Dropped::default());
    assert!(done.digest.matches(&dir.0).unwrap());
    fs::write(dir.0.join("h"), "neW").unwrap();
    assert!(!done.digest.matches(&dir.0).unwrap());
}

/// Calls a function in the middle of a large file.
#[cfg(unix)]
struct Altering<F>(Option<F>, Vec<u8>);

#[cfg(unix)]
impl<F: FnOnce()> std::io::Write for Altering<F> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.1.len() > 100_000 {
            self.0.take().into_iter().for_each(|alter| alter());
        }
        self.1.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A folder with a large file, `b`, between two small ones.
#[cfg(unix)]
fn incompressible() -> Folder {
    let from = Folder::new();
    let mut noise = vec![0; 1 << 20];
    ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut noise).unwrap();
    fs::create_dir(from.0.join("a")).unwrap();
    fs::write(from.0.join("a/early"), "early").unwrap();
    fs::write(from.0.join("b"), noise).unwrap();
    fs::create_dir(from.0.join("c")).unwrap();
    fs::write(from.0.join("c/late"), "late").unwrap();
    let past = std::time::SystemTime::now() - std::time::Duration::from_secs(9);
    for name in ["a/early", "a", "b", "c/late", "c", ""] {
        fs::File::open(from.0.join(name))
            .unwrap()
            .set_modified(past)
            .unwrap();
    }
    from
}

#[cfg(unix)]
fn set_length(path: &Path, length: u64) {
    fs::File::options()
        .write(true)
        .open(path)
        .unwrap()
        .set_len(length)
        .unwrap();
}

#[test]
#[cfg(unix)]
fn folder_that_changes_while_it_is_packed_is_an_error() {
    type Change<'a> = (&'a str, &'a dyn Fn(&Path));
    let changes: [Change<'_>; 7] = [
        ("b", &|dir| set_length(&dir.join("b"), 500_000)),
        ("b", &|dir| set_length(&dir.join("b"), 2 << 20)),
        ("a/early", &|dir| {
            fs::write(dir.join("a/early"), "EARLY").unwrap();
        }),
        ("a", &|dir| fs::remove_file(dir.join("a/early")).unwrap()),
        ("c/late", &|dir| {
            fs::write(dir.join("c/late"), "LATE").unwrap();
        }),
        ("c", &|dir| fs::remove_file(dir.join("c/late")).unwrap()),
        ("c", &|dir| fs::write(dir.join("c/new"), "").unwrap()),
    ];
    for (number, (name, change)) in changes.iter().enumerate() {
        let from = incompressible();
        match pack(&from.0, Altering(Some(|| change(&from.0)), Vec::new())) {
            Err(PackError::Changed(path)) => assert_eq!(path, from.0.join(name), "{number}"),
            other => panic!("{number}: {:?}", other.map(|_| ())),
        }
    }
    let from = incompressible();
    pack(&from.0, Altering(Some(|| {}), Vec::new())).unwrap();
}

#[test]
#[cfg(unix)]
fn live_folder_is_packed_as_it_is() {
    let from = incompressible();
    let shrink = || {
        set_length(&from.0.join("b"), 0);
        fs::remove_file(from.0.join("c/late")).unwrap();
    };
    let packed = pack_live(&from.0, "marker", Altering(Some(shrink), Vec::new()))
        .unwrap()
        .1;
    let to = Folder::new();
    unpack(&packed[..], &to.0, &Limits::default()).unwrap();
    let files = tree(&to.0);
    assert_eq!(
        fs::metadata(to.0.join("b")).unwrap().len(),
        1 << 20,
        "padded"
    );
    assert_eq!(
        files.keys().collect::<Vec<_>>(),
        ["a", "a/early", "b", "c", "marker"]
    );
}

#[test]
#[cfg(unix)]
fn special_file_in_a_folder_reaches_the_reader_as_dropped() {
    let from = Folder::new();
    std::os::unix::net::UnixListener::bind(from.0.join("socket")).unwrap();
    let packed = pack(&from.0, Vec::new()).unwrap();
    let to = Folder::new();
    let dropped = unpack(&packed[..], &to.0, &Limits::default())
        .unwrap()
        .dropped;
    assert_eq!(
        dropped.first,
        ["`socket`: it is a device, a pipe or a socket"]
    );
}

#[test]
fn truncated_or_damaged_archive_is_an_error() {
    let limits = Limits::default();
    let tar = [
        file("a", &"text ".repeat(300)),
        file("b", "2"),
        vec![0; 1024],
    ]
    .concat();
    let whole = gzip(&tar);
    for end in 0..whole.len() {
        refused("cut gzip", &whole[..end], &limits, "");
    }
    refused(
        "cut inside a file",
        &gzip(&tar[..700]),
        &limits,
        "truncated",
    );
    refused(
        "cut inside a header",
        &gzip(&tar[..300]),
        &limits,
        "truncated",
    );
    refused("no gzip", &tar, &limits, "gzip");
    refused("no tar", &gzip(&[b'x'; 2000]), &limits, "checksum");
    refused(
        "sparse",
        &gzip(&entry("s", b'S', 0o644, "", b"")),
        &limits,
        "sparse",
    );
    refused(
        "file as folder",
        &gzip(&[file("a", "1"), file("a/b", "2")].concat()),
        &limits,
        "contradicts",
    );
    refused(
        "pax",
        &gzip(&entry("x", b'x', 0o644, "", b"99999 path=a\n")),
        &limits,
        "extended header",
    );
}

#[test]
fn space_for_a_link_is_claimed_on_creation() {
    if !makes_links() {
        return;
    }
    let outer = Folder::new();
    let links = (0..10).map(|number| entry(&format!("l{number}"), b'2', 0o777, "t", b""));
    let tar = gzip(
        &std::iter::once(file("t", "1"))
            .chain(links)
            .collect::<Vec<_>>()
            .concat(),
    );
    let asked = std::cell::Cell::new(0);
    let room = |_| {
        asked.set(asked.get() + 1);
        // Earlier entries exist.
        assert!(fs::read_dir(&outer.0).unwrap().count() + 1 >= asked.get());
        true
    };
    unpack_within(&tar[..], &outer.0, &Limits::default(), room).unwrap();
    assert_eq!(asked.get(), 11);
}

#[test]
fn entries_nested_too_deeply_are_omitted() {
    for (levels, dropped) in [(256, 0), (257, 1), (1_000, 1)] {
        let name = vec!["d"; levels].join("/");
        let pax = |record: &str| entry("x", b'x', 0o644, "", record.as_bytes());
        let record = format!(" path={name}\n");
        let length = record.len() + (record.len() + 3).to_string().len();
        let outer = Folder::new();
        let tar = [pax(&format!("{length}{record}")), file("short", "1")].concat();
        let done = unpack(&gzip(&tar)[..], &outer.0, &Limits::default()).unwrap();
        let files = tree(&outer.0)
            .into_values()
            .filter(|content| content != "/")
            .count() as u64;
        assert_eq!(
            (done.dropped.entries, files),
            (dropped, 1 - dropped),
            "{levels}"
        );
    }
}

#[test]
fn limits_hold() {
    let limits = Limits {
        entries: 3,
        total: 100,
        file: 60,
    };
    let bytes = |count| file("a", &"x".repeat(count));
    refused("large file", &gzip(&bytes(61)), &limits, "more than 60");
    refused(
        "large sum",
        &gzip(&[bytes(60), bytes(41)].concat()),
        &limits,
        "more than 100 bytes",
    );
    refused(
        "many entries",
        &gzip(&bytes(1).repeat(4)),
        &limits,
        "more than 3 entries",
    );
    let long = |kind| entry("", kind, 0o644, "", "n".repeat(1 << 20).as_bytes());
    let links = [long(b'K'), entry("l", b'2', 0o777, "", b"")]
        .concat()
        .repeat(9);
    refused(
        "long links",
        &gzip(&links),
        &Limits::default(),
        "bytes of link names",
    );
    let named = [long(b'L'), bytes(1)].concat();
    refused(
        "long names",
        &gzip(&named),
        &Limits {
            total: 1 << 20,
            ..limits
        },
        "more than 1048576 bytes",
    );
    refused(
        "names alone",
        &gzip(&long(b'L').repeat(17)),
        &limits,
        "more than 16 extended headers",
    );
    let comment = entry("", b'g', 0o644, "", &[b'x'; 40]);
    check(
        "comments",
        &[comment.repeat(16), bytes(1)],
        &[("a", "x")],
        0,
    );
    refused(
        "comments alone",
        &gzip(&comment.repeat(1000)),
        &limits,
        "more than 16 extended headers",
    );
    let mut claims = tar::Header::new_gnu();
    claims.set_entry_type(tar::EntryType::GNULongName);
    claims.set_size(1 << 50);
    claims.set_cksum();
    refused("claimed name", &gzip(claims.as_bytes()), &limits, "claims");
    let mut device = tar::Header::new_gnu();
    device.set_entry_type(tar::EntryType::Block);
    device.set_size(u64::MAX);
    device.set_cksum();
    refused(
        "claimed device",
        &gzip(device.as_bytes()),
        &limits,
        "more than 60",
    );
}

#[test]
fn archive_file_is_complete_or_absent() {
    let (from, folder) = (Folder::new(), Folder::new());
    fs::write(from.0.join("a"), "1").unwrap();
    let path = folder.0.join("all.tar.gz");
    let (file, packed) = pack_file(&from.0, &path).unwrap();
    assert_eq!(
        tree(&folder.0).len(),
        1,
        "it has another name until it is committed"
    );
    assert!(!path.exists());
    file.commit(true).unwrap();
    let bytes = fs::read(&path).unwrap();
    let digest = ring::digest::digest(&ring::digest::SHA256, &bytes);
    let digest = crate::hex(digest);
    assert_eq!(
        packed,
        Packed {
            size: bytes.len() as u64,
            sha256: digest
        }
    );
    let to = Folder::new();
    unpack(&bytes[..], &to.0, &Limits::default()).unwrap();
    assert_eq!(
        tree(&to.0),
        BTreeMap::from([("a".to_owned(), "1".to_owned())])
    );

    fs::remove_file(&path).unwrap();
    let error = pack_file(&from.0.join("absent"), &path)
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("cannot read `") && error.contains("absent"),
        "{error}"
    );
    let error = pack_file(&from.0, &folder.0.join("none/all.tar.gz"))
        .unwrap_err()
        .to_string();
    assert!(error.contains("all.tar.gz"), "{error}");
    assert!(tree(&folder.0).is_empty(), "nothing is left behind");
}

fn check_gzip(input: &[u8], expected: Option<&[u8]>) {
    let mut out = Vec::new();
    let result = Gunzip::new(input).read_to_end(&mut out);
    match expected {
        Some(expected) => assert_eq!((result.ok(), &out[..]), (Some(expected.len()), expected)),
        None => assert!(result.is_err(), "{out:?}"),
    }
}

#[test]
fn gzip_members_are_joined() {
    let two = [gzip(b"one "), gzip(b""), gzip(b"two")].concat();
    check_gzip(&two, Some(b"one two"));
    check_gzip(&[&two[..], b"no member"].concat(), None);
}

#[test]
fn truncated_or_damaged_stream_is_an_error() {
    let whole = gzip(&[7; 1000]);
    for end in 0..whole.len() {
        check_gzip(&whole[..end], None);
    }
    let mut damaged = whole.clone();
    let crc = damaged.len() - 8;
    damaged[crc] ^= 1;
    check_gzip(&damaged, None);
    check_gzip(b"no gzip at all", None);
}
