//! Archives as results: whatever their entries are called, all files stay in the folder of the
//! result.

use std::io::Write as _;
use std::path::Path;

use crate::channel::{files, put_bytes, with_aggregator};
use crate::support::system::mode;
use sonobuoy::outside::Limits;

pub(super) const CASES: usize = 30;

/// An entry with arbitrary header fields.
fn entry(name: &[u8], kind: u8, mode: &str, target: &str, size: &[u8], data: &[u8]) -> Vec<u8> {
    let mut head = [0; 512];
    head[..name.len().min(100)].copy_from_slice(&name[..name.len().min(100)]);
    head[100..100 + mode.len()].copy_from_slice(mode.as_bytes());
    head[108..115].copy_from_slice(b"0000000");
    head[116..123].copy_from_slice(b"0000000");
    head[124..124 + size.len()].copy_from_slice(size);
    head[136..147].copy_from_slice(b"00000000000");
    head[156] = kind;
    head[157..157 + target.len()].copy_from_slice(target.as_bytes());
    head[257..265].copy_from_slice(b"ustar\x0000");
    head[148..156].fill(b' ');
    let sum: u32 = head.iter().map(|byte| u32::from(*byte)).sum();
    head[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let mut all = head.to_vec();
    all.extend(data);
    all.resize(all.len().next_multiple_of(512), 0);
    all
}

fn file(name: &str, data: &str) -> Vec<u8> {
    sized(name, b'0', data)
}

fn sized(name: &str, kind: u8, data: &str) -> Vec<u8> {
    entry(
        name.as_bytes(),
        kind,
        "0000644",
        "",
        format!("{:011o}", data.len()).as_bytes(),
        data.as_bytes(),
    )
}

fn special(name: &str, kind: u8, mode: &str, target: &str) -> Vec<u8> {
    entry(name.as_bytes(), kind, mode, target, b"00000000000", b"")
}

fn pax(name: &str, key: &str, value: &str) -> Vec<u8> {
    let mut length = key.len() + value.len() + 3;
    while format!("{length} {key}={value}\n").len() != length {
        length += 1;
    }
    [
        sized("pax", b'x', &format!("{length} {key}={value}\n")),
        file(name, "evil"),
    ]
    .concat()
}

fn gzip(tar: &[u8]) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    out.write_all(tar).unwrap();
    out.finish().unwrap()
}

fn tar(entries: &[Vec<u8>]) -> Vec<u8> {
    gzip(&[&entries.concat()[..], &[0; 1024]].concat())
}

/// Whether all paths stay inside, and all entries are regular files or folders.
fn is_sound(folder: &Path, root: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        let metadata = path.symlink_metadata().unwrap();
        if metadata.is_symlink() {
            assert!(
                path.canonicalize().unwrap().starts_with(root),
                "{path:?} leads out"
            );
        } else if metadata.is_dir() {
            is_sound(&path, root);
        } else {
            assert!(metadata.is_file(), "{path:?} is special");
            assert_eq!(mode(&path, 0) & 0o7000, 0, "{path:?} is privileged");
        }
    }
}

fn cases() -> Vec<(&'static str, Vec<u8>)> {
    let deep = "d/".repeat(40) + "f";
    vec![
        ("a name that climbs", tar(&[file("../evil", "x")])),
        (
            "a name that climbs later",
            tar(&[file("a/../../evil", "x")]),
        ),
        ("an absolute name", tar(&[file("/tmp/sonobuoy-evil", "x")])),
        ("a name of dots", tar(&[file("..", "x")])),
        ("the folder itself as a file", tar(&[file("./", "x")])),
        ("backslashes", tar(&[file("..\\..\\evil", "x")])),
        (
            "a link that leads out",
            tar(&[special("l", b'2', "0000777", "/etc")]),
        ),
        (
            "a file through a link",
            tar(&[special("l", b'2', "0000777", ".."), file("l/evil", "x")]),
        ),
        (
            "a link over a file that follows",
            tar(&[special("l", b'2', "0000777", "/etc/passwd"), file("l", "x")]),
        ),
        (
            "links that lead out together",
            tar(&[
                special("a", b'2', "0000777", "."),
                special("b", b'2', "0000777", "a/.."),
                file("b/evil", "x"),
            ]),
        ),
        (
            "a link to itself",
            tar(&[special("l", b'2', "0000777", "l")]),
        ),
        (
            "a hard link to outside",
            tar(&[special("h", b'1', "0000644", "/etc/passwd")]),
        ),
        (
            "a hard link that climbs",
            tar(&[special("h", b'1', "0000644", "../../definition.json")]),
        ),
        ("a device", tar(&[special("null", b'3', "0000666", "")])),
        ("a disk", tar(&[special("sda", b'4', "0000666", "")])),
        ("a pipe", tar(&[special("pipe", b'6', "0000666", "")])),
        (
            "a privileged file",
            tar(&[entry(b"su", b'0', "0006755", "", b"00000000001", b"x")]),
        ),
        (
            "an unreadable file",
            tar(&[entry(b"locked", b'0', "0000000", "", b"00000000001", b"x")]),
        ),
        (
            "an inaccessible folder",
            tar(&[
                special("locked/", b'5', "0000000", ""),
                file("locked/f", "x"),
            ]),
        ),
        (
            "a file and a folder of one name",
            tar(&[file("a", "x"), file("a/b", "x")]),
        ),
        ("a deep folder", tar(&[file(&deep, "x")])),
        (
            "a pax name that climbs",
            tar(&[pax("harmless", "path", "../../evil")]),
        ),
        (
            "a pax link that leads out",
            tar(&[pax("harmless", "linkpath", "/etc/passwd")]),
        ),
        (
            "a pax size of the sky",
            tar(&[pax("harmless", "size", "99999999999999999999")]),
        ),
        (
            "a pax name with a NUL",
            tar(&[pax("harmless", "path", "a\0b")]),
        ),
        (
            "a GNU name that climbs",
            tar(&[
                sized("././@LongLink", b'L', "../../evil\0"),
                file("harmless", "x"),
            ]),
        ),
        (
            "a GNU name of 64 MiB",
            tar(&[entry(
                b"././@LongLink",
                b'L',
                "0000644",
                "",
                b"00400000000",
                b"x",
            )]),
        ),
        (
            "a size that is negative",
            tar(&[entry(b"n", b'0', "0000644", "", &[0xff; 12], b"x")]),
        ),
        (
            "a file that is larger than the rest",
            tar(&[entry(b"n", b'0', "0000644", "", b"77777777777", b"x")]),
        ),
        ("half of a gzip", {
            let whole = tar(&[file("a", &"x".repeat(9_000))]);
            whole[..whole.len() / 2].to_vec()
        }),
    ]
}

#[test]
fn archive_entries_stay_in_their_folder() {
    let cases = cases();
    assert_eq!(cases.len(), CASES);
    for (name, archive) in cases {
        with_aggregator(Limits::default(), |aggregator| {
            let answer = aggregator
                .worker
                .say(put_bytes("Content-Type: application/gzip\r\n", &archive));
            let code = answer.split(' ').nth(1).unwrap_or_default();
            assert!(["200", "413", "500"].contains(&code), "{name}: {answer}");
            let run = aggregator.results.ancestors().nth(3).unwrap();
            is_sound(run, &aggregator.results.join("n"));
            let evil = ["evil", "passwd"]
                .iter()
                .any(|name| run.join(name).exists())
                || Path::new("/tmp/sonobuoy-evil").exists();
            assert!(!evil, "{name}");
            if code != "200" {
                assert_eq!(
                    files(&aggregator.results),
                    0,
                    "{name}: a part of it was kept"
                );
                // The next attempt succeeds normally.
                aggregator.takes_a_result();
            }
        });
    }
}
