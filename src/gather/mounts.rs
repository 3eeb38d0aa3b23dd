//! Mounted file systems and their free space. Starts a thread for each network file system, since it may never answer; a
//! thread that hangs is abandoned and the mount reports it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;

use super::{Facts, NodeFiles};
use base::json::json;
use base::stop::Stop;

/// Timeout for the server of a network file system.
const STAT_TIMEOUT: Duration = Duration::from_millis(200);

/// Network file systems, whose server may be unreachable.
const REMOTE: &[&str] =
    &["nfs", "cifs", "smb", "fuse", "ceph", "glusterfs", "9p", "lustre", "afs", "gpfs", "beegfs", "virtiofs"];

type Sizes = BTreeMap<&'static str, u64>;

pub(super) fn gather(node: &NodeFiles, facts: &mut Facts) {
    // A container's own mounts are not the node's; those of the first process are.
    let Some(table) = node.first(["/proc/1/mounts", "/proc/self/mounts", "/etc/mtab"]) else { return };
    let bound = bind_mounts(&node.text("/proc/1/mountinfo").unwrap_or_default());
    let mounts: Vec<Value> = table.lines().filter_map(|line| mount(node, line, &bound)).collect();
    facts.set("mounts", mounts);
}

fn mount(node: &NodeFiles, line: &str, bound: &[String]) -> Option<Value> {
    let words: Vec<String> = line.split_whitespace().map(unescape).collect();
    let [device, mount, fstype, options, rest @ ..] = &words[..] else { return None };
    let on_a_device = device.starts_with(['/', '\\']) || device.contains(":/");
    if !on_a_device || fstype == "none" {
        return None;
    }
    let is_told = options.split(',').any(|option| option == "bind");
    let bind = if bound.contains(mount) && !is_told { ",bind" } else { "" };
    let number = |index: usize| rest.get(index).and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
    let mut found = json!({
        "mount": mount, "device": device, "fstype": fstype, "options": options.clone() + bind,
        "uuid": uuid(node, device).unwrap_or_else(|| "N/A".into()),
        "dump": number(0), "passno": number(1),
    });
    match node.resolve(mount, true).map_or(Some(Sizes::new()), |path| room(&path, fstype)) {
        Some(sizes) => sizes.into_iter().for_each(|(name, size)| found[name] = size.into()),
        None => found["note"] = "Could not get extra information due to timeout".into(),
    }
    Some(found)
}

/// The sizes of a mount, empty if they are unknown; `None` after a timeout.
fn room(path: &Path, fstype: &str) -> Option<Sizes> {
    if !REMOTE.iter().any(|kind| fstype.starts_with(kind)) {
        return Some(sizes(path).unwrap_or_default());
    }
    let (told, answer) = (Stop::new(), Arc::new(Mutex::default()));
    let (path, tell, kept) = (path.to_owned(), told.clone(), Arc::clone(&answer));
    let ask = move || {
        *base::lock(&kept) = sizes(&path).unwrap_or_default();
        tell.stop();
    };
    base::thread("mount").spawn(ask).ok()?;
    told.wait(STAT_TIMEOUT).then(|| std::mem::take(&mut *base::lock(&answer)))
}

/// Sizes in bytes, blocks and inodes.
pub(super) fn sizes(path: &Path) -> Option<Sizes> {
    let found = rustix::fs::statvfs(path).ok()?;
    Some(Sizes::from([
        ("size_total", found.f_frsize * found.f_blocks),
        ("size_available", found.f_frsize * found.f_bavail),
        ("block_size", found.f_bsize),
        ("block_total", found.f_blocks),
        ("block_available", found.f_bavail),
        ("block_used", found.f_blocks.saturating_sub(found.f_bavail)),
        ("inode_total", found.f_files),
        ("inode_available", found.f_favail),
        ("inode_used", found.f_files.saturating_sub(found.f_favail)),
    ]))
}

/// Mount points of a folder of a file system instead of its root.
fn bind_mounts(mountinfo: &str) -> Vec<String> {
    let lines = mountinfo.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (root, point) = (words.get(3)?, words.get(4)?);
        let source = words.iter().skip_while(|word| **word != "-").nth(2)?;
        (*root != "/" && source.starts_with('/')).then(|| unescape(point))
    });
    lines.collect()
}

fn uuid(node: &NodeFiles, device: &str) -> Option<String> {
    // A mapped device is mounted by its name but linked by its number.
    let names = [device.rsplit('/').next().map(str::to_owned), node.link_name(device)];
    let leads_here = |uuid: &String| {
        let target = node.link_name(&format!("/dev/disk/by-uuid/{uuid}"));
        target.is_some() && names.contains(&target)
    };
    node.list("/dev/disk/by-uuid").into_iter().find(leads_here)
}

/// Decodes octal escapes such as `\040`, which mount tables use for blanks.
fn unescape(word: &str) -> String {
    let mut parts = word.split('\\');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        match part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                bytes.extend(&part.as_bytes()[3..]);
            }
            None => bytes.extend([b"\\", part.as_bytes()].concat()),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::super::node::tests::Scratch;
    use super::*;

    #[test]
    fn only_device_mounts_are_listed() {
        let mounts = "proc /proc proc rw 0 0\n/dev/sda1 / ext4 rw,relatime 0 1\n\
                      /dev/sda1 /mnt/with\\040blank ext4 rw 0 0\nserver:/share /absent nfs4 rw 0 0\nbroken line\n";
        let info = "29 1 8:1 / / rw - ext4 /dev/sda1 rw\n30 29 8:1 /srv /mnt/with\\040blank rw shared:1 - ext4 /dev/sda1 rw\n";
        let (_scratch, node) = Scratch::node(&[("proc/1/mounts", mounts), ("proc/1/mountinfo", info)]);
        let mut facts = Facts::default();
        gather(&node, &mut facts);
        let found = facts.get("mounts").unwrap().as_array().unwrap().clone();
        let points: Vec<&Value> = found.iter().map(|mount| &mount["mount"]).collect();
        assert_eq!(points, ["/", "/mnt/with blank", "/absent"]);
        assert_eq!((&found[0]["passno"], &found[0]["options"]), (&json!(1), &json!("rw,relatime")));
        assert_eq!(found[1]["options"], "rw,bind");
        assert!(found[0]["size_total"].as_u64().unwrap() > 0, "the root is really there");
        assert!(found[2].get("size_total").is_none());
    }
}
