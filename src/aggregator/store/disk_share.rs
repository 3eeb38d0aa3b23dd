//! The share of the disk of each result.
//!
//! Each plugin has an equal part of the space at the beginning of the run, and each of its results an equal part of that.
//! A result may always use its share, and more as long as the rest suffices for the unused shares of all results that are
//! not settled: one that needs much gets it, and none takes the share of another. A node that joins later gets an equal part
//! of what its plugin's results have not used. An upload claims space before it writes, and releases it unless it is kept.
//! Starts no thread; the lock is held for arithmetic alone.

use std::cell::Cell;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::aggregator::limits::{LimitExceeded, Unit};
use crate::{config, layout};
use base::sys;
use client::protocol::ResultId;

/// Space of a file comes in blocks.
const BLOCK: u64 = 4 << 10;
/// Claimed in advance, so that free space is not queried for each small file.
const AHEAD: Space = Space { bytes: 64 << 10, inodes: 8 };

/// Space on a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Space {
    pub(crate) bytes: u64,
    pub(crate) inodes: u64,
}

impl Space {
    /// The space of a file.
    pub(crate) fn file(bytes: u64) -> Self {
        Self { bytes: bytes.checked_next_multiple_of(BLOCK).unwrap_or(u64::MAX), inodes: 1 }
    }

    fn each(self, other: Self, with: impl Fn(u64, u64) -> u64) -> Self {
        Self { bytes: with(self.bytes, other.bytes), inodes: with(self.inodes, other.inodes) }
    }

    fn plus(self, other: Self) -> Self {
        self.each(other, u64::saturating_add)
    }

    fn less(self, other: Self) -> Self {
        self.each(other, u64::saturating_sub)
    }

    fn part(self, count: usize) -> Self {
        let count = count.max(1) as u64;
        Self { bytes: self.bytes / count, inodes: self.inodes / count }
    }

    /// The resource of which it has less than `other`.
    fn short_of(self, other: Self) -> Option<Unit> {
        if self.bytes < other.bytes {
            return Some(Unit::Bytes);
        }
        (self.inodes < other.inodes).then_some(Unit::Inodes)
    }

    fn of(self, unit: Unit) -> u64 {
        match unit {
            Unit::Bytes => self.bytes,
            Unit::Inodes => self.inodes,
        }
    }
}

/// The space of a result.
#[derive(Clone, Copy, Default)]
struct Held {
    used: Space,
    /// What it may always use; nothing once it is settled.
    share: Space,
}

impl Held {
    fn unused(self) -> Space {
        self.share.less(self.used)
    }
}

/// The space of all results, with its sums.
#[derive(Default)]
struct Sums {
    results: HashMap<ResultId, Held>,
    plugins: HashMap<String, Space>,
    used: Space,
    unused: Space,
}

impl Sums {
    fn get(&self, id: &ResultId) -> Held {
        self.results.get(id).copied().unwrap_or_default()
    }

    fn set(&mut self, id: &ResultId, held: Held) {
        let before = self.results.insert(id.clone(), held).unwrap_or_default();
        let plugin = self.plugins.entry(id.plugin.clone()).or_default();
        for used in [plugin, &mut self.used] {
            *used = used.less(before.used).plus(held.used);
        }
        self.unused = self.unused.less(before.unused()).plus(held.unused());
    }
}

/// The disk of a run.
pub(crate) struct Disk {
    dir: PathBuf,
    reserve: Space,
    /// The maximum of one plugin.
    plugin: Space,
    /// The maximum bytes of all results.
    run: u64,
    sums: Mutex<Sums>,
}

impl Disk {
    /// The disk of the plugins' folders in `dir`, which may contain results from before a restart.
    pub(super) fn open(dir: &Path, ids: &[ResultId], limits: &config::Limits) -> Self {
        let unless_zero = |limit: u64| if limit == 0 { u64::MAX } else { limit };
        let mut sums = Sums::default();
        for id in ids {
            let path = dir.join(&id.plugin).join(layout::RESULTS).join(&id.node);
            sums.set(id, Held { used: used(&path), share: Space::default() });
        }
        let reserve = Space { bytes: limits.results.free_bytes, inodes: limits.results.free_inodes };
        let run = unless_zero(limits.run.bytes / 2);
        let all = free(dir).less(reserve).plus(sums.used);
        let all = Space { bytes: all.bytes.min(run), ..all };
        let mut counts: HashMap<&str, usize> = HashMap::new();
        let known: Vec<ResultId> = sums.results.keys().cloned().collect();
        known.iter().for_each(|id| *counts.entry(&id.plugin).or_default() += 1);
        for id in &known {
            let share = all.part(counts.len()).part(counts[id.plugin.as_str()]);
            sums.set(id, Held { share, ..sums.get(id) });
        }
        let plugin =
            Space { bytes: unless_zero(limits.plugin.bytes), inodes: unless_zero(limits.plugin.inodes) };
        Self { dir: dir.to_owned(), reserve, plugin, run, sums: Mutex::new(sums) }
    }

    /// A disk without limits, for error reports.
    pub(super) fn endless() -> Self {
        let (dir, reserve) = (PathBuf::new(), Space::default());
        let plugin = Space { bytes: u64::MAX, inodes: u64::MAX };
        Self { dir, reserve, plugin, run: u64::MAX, sums: Mutex::default() }
    }

    /// Expects one more result, of a node that has joined.
    pub(super) fn expect(&self, id: &ResultId) {
        let mut sums = self.lock();
        let same = sums.results.iter().filter(|(other, _)| other.plugin == id.plugin);
        let unused = same.filter(|(_, held)| held.unused() != Space::default());
        let unused: Vec<_> = unused.map(|(id, held)| (id.clone(), *held)).collect();
        let sum = unused.iter().fold(Space::default(), |sum, (_, held)| sum.plus(held.unused()));
        let share = sum.part(unused.len() + 1);
        for (id, held) in unused {
            sums.set(&id, Held { share: held.used.plus(share), ..held });
        }
        sums.set(id, Held { used: Space::default(), share });
    }

    /// An empty claim for an upload of `id`.
    pub(super) fn claim<'a>(&'a self, id: &'a ResultId) -> Claim<'a> {
        Claim { disk: self, id, taken: Cell::default(), left: Cell::default() }
    }

    /// Notes that `id` is settled.
    pub(super) fn done(&self, id: &ResultId) {
        let mut sums = self.lock();
        let held = Held { share: Space::default(), ..sums.get(id) };
        sums.set(id, held);
    }

    fn take(&self, id: &ResultId, more: Space) -> Result<(), LimitExceeded> {
        self.take_of(free(&self.dir), id, more)
    }

    fn take_of(&self, free: Space, id: &ResultId, more: Space) -> Result<(), LimitExceeded> {
        if let Some(unit) = free.short_of(self.reserve.plus(more)) {
            return Err(LimitExceeded::Disk(free.of(unit), self.reserve.of(unit), unit));
        }
        let mut sums = self.lock();
        if sums.used.plus(more).bytes > self.run {
            return Err(LimitExceeded::Run(self.run));
        }
        let plugin = sums.plugins.get(&id.plugin).copied().unwrap_or_default();
        if let Some(unit) = self.plugin.short_of(plugin.plus(more)) {
            return Err(LimitExceeded::Plugin(self.plugin.of(unit), unit));
        }
        let held = sums.get(id);
        let used = held.used.plus(more);
        if held.share.short_of(used).is_some() {
            let others = sums.unused.less(held.unused());
            let bytes = free.bytes.min(self.reserve.bytes.saturating_add(self.run - sums.used.bytes));
            let left = Space { bytes, ..free };
            if let Some(unit) = left.short_of(self.reserve.plus(others).plus(more)) {
                return Err(LimitExceeded::Share(held.share.of(unit), unit));
            }
        }
        sums.set(id, Held { used, ..held });
        Ok(())
    }

    fn release(&self, id: &ResultId, space: Space) {
        let mut sums = self.lock();
        let held = sums.get(id);
        sums.set(id, Held { used: held.used.less(space), ..held });
    }

    fn lock(&self) -> MutexGuard<'_, Sums> {
        self.sums.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The space of one upload, released when it is dropped.
pub(super) struct Claim<'a> {
    disk: &'a Disk,
    id: &'a ResultId,
    taken: Cell<Space>,
    /// The part of `taken` that was claimed in advance.
    left: Cell<Space>,
}

impl Claim<'_> {
    /// Takes `more`.
    pub(super) fn take(&self, more: Space) -> Result<(), LimitExceeded> {
        let left = self.left.get();
        if left.short_of(more).is_none() {
            self.left.set(left.less(more));
            return Ok(());
        }
        let take = |ahead| {
            let wanted = more.plus(ahead).less(left);
            self.disk.take(self.id, wanted)?;
            self.taken.set(self.taken.get().plus(wanted));
            self.left.set(left.plus(wanted).less(more));
            Ok(())
        };
        // Without space to claim in advance, `more` may still fit.
        take(AHEAD).or_else(|_| take(Space::default()))
    }

    /// Whether `more` could be taken.
    pub(super) fn check(&self, more: Space) -> Result<(), LimitExceeded> {
        self.disk.take(self.id, more)?;
        self.disk.release(self.id, more);
        Ok(())
    }

    /// Keeps the space that was used.
    pub(super) fn keep(&self) {
        self.disk.release(self.id, self.left.take());
        self.taken.set(Space::default());
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.disk.release(self.id, self.taken.get());
    }
}

fn free(dir: &Path) -> Space {
    Space { bytes: sys::free_bytes(dir), inodes: sys::free_inodes(dir) }
}

/// The space of a file or folder, as far as it is readable.
fn used(path: &Path) -> Space {
    let Ok(metadata) = fs::symlink_metadata(path) else { return Space::default() };
    let below = if metadata.is_dir() { fs::read_dir(path).ok() } else { None };
    let entries = below.into_iter().flatten().flatten();
    entries.fold(Space::file(metadata.len()), |sum, entry| sum.plus(used(&entry.path())))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn space(mib: u64) -> Space {
        Space { bytes: mib * MIB, inodes: mib }
    }

    fn id(plugin: &str) -> ResultId {
        ResultId::global(plugin)
    }

    /// Replaces all shares, in MiB.
    fn share<const N: usize>(disk: &Disk, shares: [(ResultId, u64); N]) {
        let mut sums = Sums::default();
        for (id, mib) in shares {
            sums.set(&id, Held { share: space(mib), ..Held::default() });
        }
        *disk.lock() = sums;
    }

    /// Three plugins on a disk with 90 MiB and as many inodes, besides a reserve of ten.
    fn disk(change: impl Fn(&mut Disk)) -> Disk {
        let limits = config::Limits::default();
        let mut disk = Disk::open(Path::new("/nonexistent"), &["a", "b", "c"].map(id), &limits);
        (disk.reserve, disk.run) = (space(10), u64::MAX);
        share(&disk, ["a", "b", "c"].map(|plugin| (id(plugin), 30)));
        change(&mut disk);
        disk
    }

    #[test]
    fn what_others_have_not_used_of_theirs_is_not_taken() {
        let disk = disk(|_| {});
        let take = |left: u64, plugin: &str, mib: u64| disk.take_of(space(left), &id(plugin), space(mib));
        assert_eq!(take(100, "a", 30), Ok(()));
        assert_eq!(take(70, "a", 1), Err(LimitExceeded::Share(30 * MIB, Unit::Bytes)));
        assert_eq!(take(70, "b", 20), Ok(()));
        assert_eq!(take(50, "a", 1), Err(LimitExceeded::Share(30 * MIB, Unit::Bytes)), "b may need ten more");
        disk.done(&id("b"));
        assert_eq!(take(50, "a", 10), Ok(()), "b needs no more");
        assert_eq!(take(40, "a", 1), Err(LimitExceeded::Share(30 * MIB, Unit::Bytes)), "c may need thirty");
        assert_eq!(take(40, "c", 30), Ok(()), "its part was always there");
        assert_eq!(take(10, "b", 1), Err(LimitExceeded::Disk(10 * MIB, 10 * MIB, Unit::Bytes)));
    }

    #[test]
    fn a_node_keeps_its_part_whatever_the_others_of_its_plugin_take() {
        let node = |name| ResultId::on_node("p", name);
        let ids = ["a", "b", "c"].map(node);
        let mut disk = disk(|_| {});
        disk.run = 90 * MIB;
        let shares = [(id("job"), 45), (ids[0].clone(), 15), (ids[1].clone(), 15), (ids[2].clone(), 15)];
        share(&disk, shares);
        let take = |left: u64, id: &ResultId, mib: u64| disk.take_of(space(left), id, space(mib));
        let full = Err(LimitExceeded::Share(15 * MIB, Unit::Bytes));
        assert_eq!(take(100, &ids[0], 16), full);
        assert_eq!(take(100, &ids[0], 15), Ok(()));
        assert_eq!(take(85, &ids[0], 1), full);
        disk.expect(&node("late"));
        let part = |id: &ResultId| disk.lock().get(id).share;
        assert_eq!(
            [&ids[1], &ids[2], &node("late")].map(part),
            [space(10); 3],
            "what was left, in equal parts"
        );
        assert_eq!(part(&id("job")), space(45), "the part of another plugin stays");
        disk.done(&ids[2]);
        assert_eq!(take(85, &ids[0], 10), Ok(()), "what a settled result has left is free");
        assert_eq!(take(75, &ids[0], 1), full);
        assert_eq!(
            take(75, &ids[2], 1),
            Err(LimitExceeded::Share(0, Unit::Bytes)),
            "its part was given away"
        );
        assert_eq!(take(75, &ids[1], 10), Ok(()));
        assert_eq!(take(65, &node("late"), 10), Ok(()));
        assert_eq!(take(55, &id("job"), 45), Ok(()));
    }

    #[test]
    fn plugins_get_equal_parts_and_their_nodes_equal_parts_of_those() {
        let mut limits = config::Limits::default();
        (limits.run.bytes, limits.results.free_bytes) = (16 << 10, 0);
        let ids = [id("job"), ResultId::on_node("p", "a"), ResultId::on_node("p", "b")];
        let dir = base::temp::Folder::new().unwrap();
        let disk = Disk::open(&dir, &ids, &limits);
        assert_eq!(ids.map(|id| disk.lock().get(&id).share.bytes), [4 << 10, 2 << 10, 2 << 10]);
    }

    #[test]
    fn inodes_are_shared_as_bytes_are() {
        let disk = disk(|_| {});
        let inodes = |inodes| Space { bytes: 0, inodes };
        assert_eq!(disk.take_of(space(100), &id("a"), inodes(30)), Ok(()));
        assert_eq!(disk.take_of(space(70), &id("a"), inodes(1)), Err(LimitExceeded::Share(30, Unit::Inodes)));
        assert_eq!(
            disk.take_of(space(10), &id("b"), inodes(1)),
            Err(LimitExceeded::Disk(10, 10, Unit::Inodes))
        );
    }

    #[test]
    fn the_limits_of_a_plugin_and_of_the_run_hold_whatever_there_is() {
        let capped = disk(|disk| disk.plugin = Space { bytes: 5 * MIB, inodes: 3 });
        assert_eq!(
            capped.take_of(space(100), &id("a"), space(4)),
            Err(LimitExceeded::Plugin(3, Unit::Inodes))
        );
        assert_eq!(
            capped.take_of(space(100), &id("a"), space(6)),
            Err(LimitExceeded::Plugin(5 * MIB, Unit::Bytes))
        );
        let run = disk(|disk| {
            disk.run = 9 * MIB;
            share(disk, ["a", "b", "c"].map(|plugin| (id(plugin), 3)));
        });
        assert_eq!(run.take_of(space(100), &id("a"), space(3)), Ok(()));
        assert_eq!(
            run.take_of(space(100), &id("a"), space(1)),
            Err(LimitExceeded::Share(3 * MIB, Unit::Bytes))
        );
        run.done(&id("b"));
        run.done(&id("c"));
        assert_eq!(run.take_of(space(100), &id("a"), space(6)), Ok(()));
        assert_eq!(run.take_of(space(100), &id("a"), space(1)), Err(LimitExceeded::Run(9 * MIB)));
    }

    #[test]
    fn a_claim_is_given_back_unless_it_is_kept() {
        let dir = base::temp::Folder::new().unwrap();
        let limits = config::Limits::default();
        let a = id("a");
        let disk = Disk::open(&dir, std::slice::from_ref(&a), &limits);
        let used = || disk.lock().get(&a).used;
        {
            let claim = disk.claim(&a);
            claim.take(Space::file(1)).unwrap();
            claim.take(Space::file(10_000)).unwrap();
            assert!(used().inodes >= 2);
        }
        assert_eq!(used(), Space::default());
        let claim = disk.claim(&a);
        claim.take(Space::file(1)).unwrap();
        claim.take(Space::file(10_000)).unwrap();
        claim.keep();
        drop(claim);
        assert_eq!(used(), Space { bytes: 4 * BLOCK, inodes: 2 });
        fs::create_dir_all(dir.join("a/results/global")).unwrap();
        fs::write(dir.join("a/results/global/f"), "x").unwrap();
        assert_eq!(
            Disk::open(&dir, std::slice::from_ref(&a), &limits).lock().get(&a).used.inodes,
            2,
            "over a restart"
        );
    }
}
