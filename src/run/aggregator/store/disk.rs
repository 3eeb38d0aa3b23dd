//! The share of the disk of each result.
//!
//! Each plugin has an equal part of the space at the beginning of the run, and each of its results
//! an equal part of that. A result may always use its share, and more as long as the rest suffices
//! for the unused shares of all results that are not settled: one that needs much gets it, and none
//! takes the share of another. A node that joins later gets an equal part of what its plugin's
//! results have not used. An upload claims space before it writes, and releases it unless it is
//! kept. The disk is measured once for several MiB. Starts no thread; the locks are held for
//! arithmetic alone.

use std::cell::Cell;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::aggregator::limits::Refusal;
use base::{lock, sys};
use client::protocol::ResultId;
use model::{config, layout};

/// Space of a file comes in blocks.
const BLOCK: u64 = 4 << 10;
/// Bytes that are taken after a measurement of the disk before it is measured again ...
const MEASURED_BYTES: u64 = 8 << 20;
/// ... and the age of a measurement, since other programs write to the disk, too.
const MEASURED_AGE: Duration = Duration::from_millis(100);
/// The units of [`Space`].
const UNITS: [&str; 2] = ["bytes", "inodes"];

/// Space on a disk: bytes and inodes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Space([u64; 2]);

impl Space {
    pub(super) fn bytes(bytes: u64) -> Self {
        Self([bytes, 0])
    }

    /// The space of a file.
    pub(super) fn file(bytes: u64) -> Self {
        Self([bytes.checked_next_multiple_of(BLOCK).unwrap_or(u64::MAX), 1])
    }

    fn plus(self, other: Self) -> Self {
        Self([0, 1].map(|unit| self.0[unit].saturating_add(other.0[unit])))
    }

    fn less(self, other: Self) -> Self {
        Self([0, 1].map(|unit| self.0[unit].saturating_sub(other.0[unit])))
    }

    fn part(self, count: usize) -> Self {
        Self(self.0.map(|amount| amount / count.max(1) as u64))
    }

    /// The unit of which it has less than `other`.
    fn short_of(self, other: Self) -> Option<usize> {
        [0, 1]
            .into_iter()
            .find(|&unit| self.0[unit] < other.0[unit])
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
    /// Space and number of the results of each plugin.
    plugins: HashMap<String, (Space, usize)>,
    used: Space,
    unused: Space,
}

impl Sums {
    fn get(&self, id: &ResultId) -> Held {
        self.results.get(id).copied().unwrap_or_default()
    }

    fn set(&mut self, id: &ResultId, held: Held) {
        let (used, count) = self.plugins.entry(id.plugin.clone()).or_default();
        let before = self.results.insert(id.clone(), held).unwrap_or_else(|| {
            *count += 1;
            Held::default()
        });
        for used in [used, &mut self.used] {
            *used = used.less(before.used).plus(held.used);
        }
        self.unused = self.unused.less(before.unused()).plus(held.unused());
    }
}

/// The free space when it was last measured, less what was taken since.
#[derive(Clone, Copy)]
struct Measured {
    at: Instant,
    free: Space,
    /// Bytes that may still be taken before the next measurement.
    credit: u64,
}

/// The disk of a run.
pub(super) struct Disk {
    dir: PathBuf,
    reserve: Space,
    /// The maximum of one plugin.
    plugin: Space,
    /// The maximum bytes of all results.
    run: u64,
    sums: Mutex<Sums>,
    measured: Mutex<Option<Measured>>,
}

impl Disk {
    /// The disk of the plugins' folders in `dir`, which may contain results from before a restart.
    pub(super) fn open(dir: &Path, ids: &[ResultId], limits: &config::Limits) -> Self {
        let unless_zero = |limit: u64| if limit == 0 { u64::MAX } else { limit };
        let reserve = Space([limits.results.free_bytes, limits.results.free_inodes]);
        let run = unless_zero(limits.run.bytes / 2);
        let mut sums = Sums::default();
        for id in ids {
            let path = dir.join(&id.plugin).join(layout::RESULTS).join(&id.node);
            sums.set(
                id,
                Held {
                    used: used(&path),
                    share: Space::default(),
                },
            );
        }
        let Space([bytes, inodes]) = free(dir).less(reserve).plus(sums.used);
        let part = Space([bytes.min(run), inodes]).part(sums.plugins.len());
        for id in ids {
            let share = part.part(sums.plugins[&id.plugin].1);
            sums.set(
                id,
                Held {
                    share,
                    ..sums.get(id)
                },
            );
        }
        let plugin = Space([limits.plugin.bytes, limits.plugin.inodes].map(unless_zero));
        Self {
            dir: dir.to_owned(),
            reserve,
            plugin,
            run,
            sums: Mutex::new(sums),
            measured: Mutex::default(),
        }
    }

    /// Expects one more result, of a node that has joined.
    pub(super) fn expect(&self, id: &ResultId) {
        let mut sums = lock(&self.sums);
        let same = sums
            .results
            .iter()
            .filter(|(other, _)| other.plugin == id.plugin);
        let unused = same.filter(|(_, held)| held.unused() != Space::default());
        let unused: Vec<_> = unused.map(|(id, held)| (id.clone(), *held)).collect();
        let sum = unused
            .iter()
            .fold(Space::default(), |sum, (_, held)| sum.plus(held.unused()));
        let share = sum.part(unused.len() + 1);
        for (id, held) in unused {
            sums.set(
                &id,
                Held {
                    share: held.used.plus(share),
                    ..held
                },
            );
        }
        sums.set(
            id,
            Held {
                used: Space::default(),
                share,
            },
        );
    }

    /// Notes that `id` is settled.
    pub(super) fn done(&self, id: &ResultId) {
        let mut sums = lock(&self.sums);
        let held = Held {
            share: Space::default(),
            ..sums.get(id)
        };
        sums.set(id, held);
    }

    /// Takes `more` for `id` from the disk. A system call for each block of a body would cost more
    /// than its bytes.
    fn take_measured(&self, id: &ResultId, more: Space) -> Result<(), Refusal> {
        if let Some(free) = self.free_for(more)
            && self.take(free, id, more).is_ok()
        {
            return Ok(());
        }
        let free = free(&self.dir);
        self.take(free, id, more)?;
        let credit = MEASURED_BYTES.saturating_sub(more.0[0]);
        *lock(&self.measured) = Some(Measured {
            at: Instant::now(),
            free: free.less(more),
            credit,
        });
        Ok(())
    }

    /// The free space before `more` is taken, as far as the last measurement tells it.
    fn free_for(&self, more: Space) -> Option<Space> {
        let mut measured = lock(&self.measured);
        let last = measured
            .as_mut()
            .filter(|last| last.at.elapsed() < MEASURED_AGE)?;
        last.credit = last.credit.checked_sub(more.0[0])?;
        let free = last.free;
        last.free = free.less(more);
        Some(free)
    }

    fn take(&self, free: Space, id: &ResultId, more: Space) -> Result<(), Refusal> {
        if let Some(unit) = free.short_of(self.reserve.plus(more)) {
            let (left, reserve, unit) = (free.0[unit], self.reserve.0[unit], UNITS[unit]);
            return Err(Refusal::Full(format!(
                "{left} {unit} are left, of which {reserve} stay in reserve"
            )));
        }
        let mut sums = lock(&self.sums);
        let Space([left, _]) = Space::bytes(self.run).less(sums.used);
        if left < more.0[0] {
            let max = self.run;
            return Err(Refusal::Full(format!(
                "the results of the run may take {max} bytes (half of `Limits.Run.Bytes`)"
            )));
        }
        let (plugin, _) = sums.plugins.get(&id.plugin).copied().unwrap_or_default();
        if let Some(unit) = self.plugin.short_of(plugin.plus(more)) {
            let (max, unit) = (self.plugin.0[unit], UNITS[unit]);
            return Err(Refusal::TooLarge(format!(
                "the results of its plugin are too large: more than {max} {unit} (`Limits.Plugin`)"
            )));
        }
        let held = sums.get(id);
        let used = held.used.plus(more);
        if held.share.short_of(used).is_some() {
            let Space([bytes, inodes]) = free.less(self.reserve);
            let others = sums.unused.less(held.unused());
            if let Some(unit) = Space([bytes.min(left), inodes]).short_of(others.plus(more)) {
                let (share, unit) = (held.share.0[unit], UNITS[unit]);
                return Err(Refusal::Full(format!(
                    "its share is {share} {unit}, and other results may need the rest \
                     (`Limits.Run.Bytes`)"
                )));
            }
        }
        sums.set(id, Held { used, ..held });
        Ok(())
    }
}

/// The space of one upload, released when it is dropped.
pub(super) struct Claim<'a> {
    /// `None` for error reports, which the reserve is for.
    disk: Option<&'a Disk>,
    id: &'a ResultId,
    taken: Cell<Space>,
}

impl<'a> Claim<'a> {
    pub(super) fn new(disk: Option<&'a Disk>, id: &'a ResultId) -> Self {
        Self {
            disk,
            id,
            taken: Cell::default(),
        }
    }

    /// Takes `more`.
    pub(super) fn take(&self, more: Space) -> Result<(), Refusal> {
        if let Some(disk) = self.disk {
            disk.take_measured(self.id, more)?;
            self.taken.set(self.taken.get().plus(more));
        }
        Ok(())
    }

    /// Whether `more` could be taken.
    pub(super) fn check(&self, more: Space) -> Result<(), Refusal> {
        Self::new(self.disk, self.id).take(more)
    }

    /// Keeps what was taken.
    pub(super) fn keep(&self) {
        self.taken.take();
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if let Some(disk) = self.disk {
            let mut sums = lock(&disk.sums);
            let held = sums.get(self.id);
            sums.set(
                self.id,
                Held {
                    used: held.used.less(self.taken.get()),
                    ..held
                },
            );
        }
    }
}

fn free(dir: &Path) -> Space {
    Space([sys::free_bytes(dir), sys::free_inodes(dir)])
}

/// The space of a file or folder, as far as it is readable.
fn used(path: &Path) -> Space {
    let Ok(metadata) = fs::symlink_metadata(path) else {
        return Space::default();
    };
    let below = if metadata.is_dir() {
        fs::read_dir(path).ok()
    } else {
        None
    };
    let entries = below.into_iter().flatten().flatten();
    entries.fold(Space::file(metadata.len()), |sum, entry| {
        sum.plus(used(&entry.path()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn space(mib: u64) -> Space {
        Space([mib * MIB, mib])
    }

    fn share_is(share: u64, unit: &str) -> Refusal {
        let text = format!("its share is {share} {unit}, and other results may need the rest");
        Refusal::Full(format!("{text} (`Limits.Run.Bytes`)"))
    }

    fn left(left: u64, reserve: u64, unit: &str) -> Refusal {
        Refusal::Full(format!(
            "{left} {unit} are left, of which {reserve} stay in reserve"
        ))
    }

    fn id(plugin: &str) -> ResultId {
        ResultId::global(plugin)
    }

    /// Replaces all shares, in MiB.
    fn share<const N: usize>(disk: &Disk, shares: [(ResultId, u64); N]) {
        let mut sums = Sums::default();
        for (id, mib) in shares {
            sums.set(
                &id,
                Held {
                    share: space(mib),
                    ..Held::default()
                },
            );
        }
        *lock(&disk.sums) = sums;
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
    fn unused_shares_of_others_are_not_taken() {
        let disk = disk(|_| {});
        let take =
            |left: u64, plugin: &str, mib: u64| disk.take(space(left), &id(plugin), space(mib));
        assert_eq!(take(100, "a", 30), Ok(()));
        assert_eq!(take(70, "a", 1), Err(share_is(30 * MIB, "bytes")));
        assert_eq!(take(70, "b", 20), Ok(()));
        assert_eq!(
            take(50, "a", 1),
            Err(share_is(30 * MIB, "bytes")),
            "b may need ten more"
        );
        disk.done(&id("b"));
        assert_eq!(take(50, "a", 10), Ok(()), "b needs no more");
        assert_eq!(
            take(40, "a", 1),
            Err(share_is(30 * MIB, "bytes")),
            "c may need thirty"
        );
        assert_eq!(take(40, "c", 30), Ok(()), "its part was always there");
        assert_eq!(take(10, "b", 1), Err(left(10 * MIB, 10 * MIB, "bytes")));
    }

    #[test]
    fn node_keeps_its_share_of_a_plugin() {
        let node = |name| ResultId::on_node("p", name);
        let ids = ["a", "b", "c"].map(node);
        let mut disk = disk(|_| {});
        disk.run = 90 * MIB;
        let shares = [
            (id("job"), 45),
            (ids[0].clone(), 15),
            (ids[1].clone(), 15),
            (ids[2].clone(), 15),
        ];
        share(&disk, shares);
        let take = |left: u64, id: &ResultId, mib: u64| disk.take(space(left), id, space(mib));
        let full = || Err(share_is(15 * MIB, "bytes"));
        assert_eq!(take(100, &ids[0], 16), full());
        assert_eq!(take(100, &ids[0], 15), Ok(()));
        assert_eq!(take(85, &ids[0], 1), full());
        disk.expect(&node("late"));
        let part = |id: &ResultId| lock(&disk.sums).get(id).share;
        assert_eq!(
            [&ids[1], &ids[2], &node("late")].map(part),
            [space(10); 3],
            "what was left, in equal parts"
        );
        assert_eq!(
            part(&id("job")),
            space(45),
            "the part of another plugin stays"
        );
        disk.done(&ids[2]);
        assert_eq!(
            take(85, &ids[0], 10),
            Ok(()),
            "what a settled result has left is free"
        );
        assert_eq!(take(75, &ids[0], 1), full());
        assert_eq!(
            take(75, &ids[2], 1),
            Err(share_is(0, "bytes")),
            "its part was given away"
        );
        assert_eq!(take(75, &ids[1], 10), Ok(()));
        assert_eq!(take(65, &node("late"), 10), Ok(()));
        assert_eq!(take(55, &id("job"), 45), Ok(()));
    }

    #[test]
    fn plugins_and_their_nodes_have_equal_shares() {
        let mut limits = config::Limits::default();
        (limits.run.bytes, limits.results.free_bytes) = (16 << 10, 0);
        let ids = [
            id("job"),
            ResultId::on_node("p", "a"),
            ResultId::on_node("p", "b"),
        ];
        let dir = base::temp::Folder::new().unwrap();
        let disk = Disk::open(&dir, &ids, &limits);
        assert_eq!(
            ids.map(|id| lock(&disk.sums).get(&id).share.0[0]),
            [4 << 10, 2 << 10, 2 << 10]
        );
    }

    #[test]
    fn inodes_are_shared_like_bytes() {
        let disk = disk(|_| {});
        let inodes = |inodes| Space([0, inodes]);
        assert_eq!(disk.take(space(100), &id("a"), inodes(30)), Ok(()));
        assert_eq!(
            disk.take(space(70), &id("a"), inodes(1)),
            Err(share_is(30, "inodes"))
        );
        assert_eq!(
            disk.take(space(10), &id("b"), inodes(1)),
            Err(left(10, 10, "inodes"))
        );
    }

    #[test]
    fn limits_of_plugin_and_run_hold_on_large_disks() {
        let plugin = |max: u64, unit: &str| {
            let text = format!("the results of its plugin are too large: more than {max} {unit}");
            Refusal::TooLarge(format!("{text} (`Limits.Plugin`)"))
        };
        let capped = disk(|disk| disk.plugin = Space([5 * MIB, 3]));
        assert_eq!(
            capped.take(space(100), &id("a"), space(4)),
            Err(plugin(3, "inodes"))
        );
        assert_eq!(
            capped.take(space(100), &id("a"), space(6)),
            Err(plugin(5 * MIB, "bytes"))
        );
        let run = disk(|disk| {
            disk.run = 9 * MIB;
            share(disk, ["a", "b", "c"].map(|plugin| (id(plugin), 3)));
        });
        assert_eq!(run.take(space(100), &id("a"), space(3)), Ok(()));
        assert_eq!(
            run.take(space(100), &id("a"), space(1)),
            Err(share_is(3 * MIB, "bytes"))
        );
        run.done(&id("b"));
        run.done(&id("c"));
        assert_eq!(run.take(space(100), &id("a"), space(6)), Ok(()));
        assert_eq!(
            run.take(space(100), &id("a"), space(1)),
            Err(Refusal::Full(
                "the results of the run may take 9437184 bytes (half of `Limits.Run.Bytes`)".into()
            ))
        );
    }

    #[test]
    fn disk_is_measured_once_for_many_blocks() {
        let dir = base::temp::Folder::new().unwrap();
        let a = id("a");
        let disk = Disk::open(&dir, std::slice::from_ref(&a), &config::Limits::default());
        let set = |at: Instant, free: Space, credit: u64| {
            *lock(&disk.measured) = Some(Measured { at, free, credit });
        };
        let last = || lock(&disk.measured).unwrap();
        let claim = Claim::new(Some(&disk), &a);
        let fresh = Instant::now() + Duration::from_secs(60);
        let known = space(1 << 20);
        set(fresh, known, MEASURED_BYTES);
        claim.take(space(2)).unwrap();
        claim.take(space(3)).unwrap();
        assert_eq!(
            (last().free, last().at),
            (known.less(space(5)), fresh),
            "counted"
        );
        claim.take(space(4)).unwrap();
        assert_ne!(last().at, fresh, "measured after eight MiB");
        let stale = Instant::now() - MEASURED_AGE;
        set(stale, known, MEASURED_BYTES);
        claim.take(space(1)).unwrap();
        assert_ne!(last().at, stale, "measured after a while");
        set(fresh, Space::default(), MEASURED_BYTES);
        claim.take(space(1)).unwrap();
        assert_ne!(last().at, fresh, "measured before a refusal");
    }

    #[test]
    fn claim_is_released_unless_kept() {
        let dir = base::temp::Folder::new().unwrap();
        let limits = config::Limits::default();
        let a = id("a");
        let disk = Disk::open(&dir, std::slice::from_ref(&a), &limits);
        let used = || lock(&disk.sums).get(&a).used;
        {
            let claim = Claim::new(Some(&disk), &a);
            claim.take(Space::file(1)).unwrap();
            claim.take(Space::file(10_000)).unwrap();
            assert!(used().0[1] >= 2);
        }
        assert_eq!(used(), Space::default());
        let claim = Claim::new(Some(&disk), &a);
        claim.take(Space::file(1)).unwrap();
        claim.take(Space::file(10_000)).unwrap();
        claim.keep();
        drop(claim);
        assert_eq!(used(), Space([4 * BLOCK, 2]));
        fs::create_dir_all(dir.join("a/results/global")).unwrap();
        fs::write(dir.join("a/results/global/f"), "x").unwrap();
        assert_eq!(
            Disk::open(&dir, std::slice::from_ref(&a), &limits)
                .sums
                .lock()
                .unwrap()
                .get(&a)
                .used
                .0[1],
            2,
            "over a restart"
        );
    }
}
