//! Who has how much of the disk: what each plugin's results take, and whether they may take more.
//!
//! A plugin may always take an equal part of what the disk had when the run began. It may take more as long as what is
//! left would still give every other plugin that is not done its own part: so one that needs much gets it, and none
//! takes another's. What an upload takes is claimed before it is written, and given back unless the upload is kept.
//! Knows no result, only plugins. Starts no thread; its lock is held for arithmetic alone.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::limits::{LimitExceeded, Unit};
use crate::config;
use base::sys;

/// What a file takes at least, and by what it grows.
const BLOCK: u64 = 4 << 10;
/// So much is claimed in advance, so that the disk is not asked about for each small file.
const AHEAD: Room = Room { bytes: 64 << 10, inodes: 8 };

/// Room on a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Room {
    pub(super) bytes: u64,
    pub(super) inodes: u64,
}

impl Room {
    /// What a file of so many bytes takes.
    pub(super) fn file(bytes: u64) -> Self {
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

    /// Of what it has less than `other`, if of anything.
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

/// What a plugin has.
#[derive(Default)]
struct Plugin {
    used: Room,
    done: bool,
}

/// The disk of a run.
pub(super) struct Disk {
    dir: PathBuf,
    reserve: Room,
    /// Of one plugin, where the configuration says so.
    cap: Room,
    /// Of all results.
    run: u64,
    /// The equal part of each.
    share: Room,
    plugins: Mutex<HashMap<String, Plugin>>,
}

impl Disk {
    /// The disk of `results`, which has a folder for each plugin that has brought something before.
    pub(super) fn open<'a>(
        results: &Path,
        plugins: impl Iterator<Item = &'a str>,
        limits: &config::Limits,
    ) -> Self {
        let unless_zero = |limit: u64| if limit == 0 { u64::MAX } else { limit };
        let mut known: HashMap<String, Plugin> = HashMap::new();
        for name in plugins {
            known.entry(name.to_owned()).or_default();
        }
        for (name, plugin) in &mut known {
            plugin.used = taken(&results.join(name));
        }
        let reserve = Room { bytes: limits.results.free_bytes, inodes: limits.results.free_inodes };
        let run = unless_zero(limits.run.bytes / 2);
        let used = known.values().fold(Room::default(), |sum, plugin| sum.plus(plugin.used));
        let all = free(results).less(reserve).plus(used);
        let all = Room { bytes: all.bytes.min(run), ..all };
        let count = known.len().max(1) as u64;
        Self {
            dir: results.to_owned(),
            reserve,
            cap: Room { bytes: unless_zero(limits.plugin.bytes), inodes: unless_zero(limits.plugin.inodes) },
            run,
            share: Room { bytes: all.bytes / count, inodes: all.inodes / count },
            plugins: Mutex::new(known),
        }
    }

    /// A disk without limits, for what must be written as long as it can.
    pub(super) fn endless() -> Self {
        let all = Room { bytes: u64::MAX, inodes: u64::MAX };
        let none = Room::default();
        Self {
            dir: PathBuf::new(),
            reserve: none,
            cap: all,
            run: u64::MAX,
            share: all,
            plugins: Mutex::default(),
        }
    }

    /// Nothing yet, for an upload of `plugin`.
    pub(super) fn claim<'a>(&'a self, plugin: &'a str) -> Claim<'a> {
        Claim { disk: self, plugin, taken: Cell::default(), left: Cell::default(), hit: RefCell::default() }
    }

    /// Notes that `plugin` will bring nothing more.
    pub(super) fn done(&self, plugin: &str) {
        self.lock().entry(plugin.to_owned()).or_default().done = true;
    }

    fn take(&self, plugin: &str, more: Room) -> Result<(), LimitExceeded> {
        self.take_of(free(&self.dir), plugin, more)
    }

    fn take_of(&self, free: Room, plugin: &str, more: Room) -> Result<(), LimitExceeded> {
        if let Some(unit) = free.short_of(self.reserve.plus(more)) {
            return Err(LimitExceeded::Disk(free.of(unit), self.reserve.of(unit), unit));
        }
        let mut plugins = self.lock();
        let sum = plugins.values().fold(0, |sum: u64, plugin| sum.saturating_add(plugin.used.bytes));
        if sum.saturating_add(more.bytes) > self.run {
            return Err(LimitExceeded::Run(self.run));
        }
        let mine = plugins.get(plugin).map_or(Room::default(), |plugin| plugin.used).plus(more);
        if let Some(unit) = self.cap.short_of(mine) {
            return Err(LimitExceeded::Plugin(self.cap.of(unit), unit));
        }
        if self.share.short_of(mine).is_some() {
            let others = plugins.iter().filter(|(name, other)| *name != plugin && !other.done);
            let owed = others.fold(Room::default(), |sum, (_, other)| sum.plus(self.share.less(other.used)));
            let left =
                Room { bytes: free.bytes.min(self.reserve.bytes.saturating_add(self.run - sum)), ..free };
            if let Some(unit) = left.short_of(self.reserve.plus(owed).plus(more)) {
                return Err(LimitExceeded::Share(self.share.of(unit), unit));
            }
        }
        plugins.entry(plugin.to_owned()).or_default().used = mine;
        Ok(())
    }

    fn give_back(&self, plugin: &str, room: Room) {
        if let Some(plugin) = self.lock().get_mut(plugin) {
            plugin.used = plugin.used.less(room);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Plugin>> {
        self.plugins.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What one upload has taken of the disk; given back when it is dropped.
pub(super) struct Claim<'a> {
    disk: &'a Disk,
    plugin: &'a str,
    taken: Cell<Room>,
    /// What was taken and not asked for yet.
    left: Cell<Room>,
    hit: RefCell<Option<LimitExceeded>>,
}

impl Claim<'_> {
    /// Takes `more`; false if there is a limit, which [`Claim::hit`] then tells.
    pub(super) fn take(&self, more: Room) -> bool {
        let left = self.left.get();
        if left.short_of(more).is_none() {
            self.left.set(left.less(more));
            return true;
        }
        // Where there is none to spare, what is asked for may still fit.
        for ahead in [AHEAD, Room::default()] {
            let wanted = more.plus(ahead).less(left);
            match self.disk.take(self.plugin, wanted) {
                Ok(()) => {
                    self.taken.set(self.taken.get().plus(wanted));
                    self.left.set(left.plus(wanted).less(more));
                    *self.hit.borrow_mut() = None;
                    return true;
                }
                Err(hit) => *self.hit.borrow_mut() = Some(hit),
            }
        }
        false
    }

    /// Whether so much could be taken now; nothing is.
    pub(super) fn would_take(&self, more: Room) -> bool {
        match self.disk.take(self.plugin, more) {
            Ok(()) => {
                self.disk.give_back(self.plugin, more);
                true
            }
            Err(hit) => {
                *self.hit.borrow_mut() = Some(hit);
                false
            }
        }
    }

    /// Which limit it ran into, if it did.
    pub(super) fn hit(&self) -> Option<LimitExceeded> {
        self.hit.borrow().clone()
    }

    /// What was taken stays taken, but for what nobody asked for.
    pub(super) fn keep(&self) {
        self.disk.give_back(self.plugin, self.left.take());
        self.taken.set(Room::default());
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.disk.give_back(self.plugin, self.taken.get());
    }
}

fn free(dir: &Path) -> Room {
    Room { bytes: sys::free_bytes(dir), inodes: sys::free_inodes(dir) }
}

/// What a folder takes, as far as it can be read.
fn taken(dir: &Path) -> Room {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.fold(Room::default(), |sum, entry| {
        let Ok(metadata) = entry.metadata() else { return sum };
        let below = if metadata.is_dir() { taken(&entry.path()) } else { Room::default() };
        sum.plus(Room::file(metadata.len())).plus(below)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn room(mib: u64) -> Room {
        Room { bytes: mib * MIB, inodes: mib }
    }

    /// Three plugins on a disk with 90 MiB and as many inodes, besides a reserve of ten.
    fn disk(change: impl Fn(&mut Disk)) -> Disk {
        let limits = config::Limits::default();
        let mut disk = Disk::open(Path::new("/nonexistent"), ["a", "b", "c"].into_iter(), &limits);
        (disk.reserve, disk.share, disk.run) = (room(10), room(30), u64::MAX);
        change(&mut disk);
        disk
    }

    #[test]
    fn what_others_have_not_used_of_theirs_is_not_taken() {
        let disk = disk(|_| {});
        let take = |left: u64, plugin: &str, mib: u64| disk.take_of(room(left), plugin, room(mib));
        assert_eq!(take(100, "a", 30), Ok(()));
        assert_eq!(take(70, "a", 1), Err(LimitExceeded::Share(30 * MIB, Unit::Bytes)));
        assert_eq!(take(70, "b", 20), Ok(()));
        assert_eq!(take(50, "a", 1), Err(LimitExceeded::Share(30 * MIB, Unit::Bytes)), "b may need ten more");
        disk.done("b");
        assert_eq!(take(50, "a", 10), Ok(()), "b needs no more");
        assert_eq!(take(40, "a", 1), Err(LimitExceeded::Share(30 * MIB, Unit::Bytes)), "c may need thirty");
        assert_eq!(take(40, "c", 30), Ok(()), "its part was always there");
        assert_eq!(take(10, "b", 1), Err(LimitExceeded::Disk(10 * MIB, 10 * MIB, Unit::Bytes)));
    }

    #[test]
    fn inodes_are_shared_as_bytes_are() {
        let disk = disk(|_| {});
        let inodes = |inodes| Room { bytes: 0, inodes };
        assert_eq!(disk.take_of(room(100), "a", inodes(30)), Ok(()));
        assert_eq!(disk.take_of(room(70), "a", inodes(1)), Err(LimitExceeded::Share(30, Unit::Inodes)));
        assert_eq!(disk.take_of(room(10), "b", inodes(1)), Err(LimitExceeded::Disk(10, 10, Unit::Inodes)));
    }

    #[test]
    fn the_limits_of_a_plugin_and_of_the_run_hold_whatever_there_is() {
        let capped = disk(|disk| disk.cap = Room { bytes: 5 * MIB, inodes: 3 });
        assert_eq!(capped.take_of(room(100), "a", room(4)), Err(LimitExceeded::Plugin(3, Unit::Inodes)));
        assert_eq!(capped.take_of(room(100), "a", room(6)), Err(LimitExceeded::Plugin(5 * MIB, Unit::Bytes)));
        let run = disk(|disk| (disk.run, disk.share) = (9 * MIB, room(3)));
        assert_eq!(run.take_of(room(100), "a", room(3)), Ok(()));
        assert_eq!(run.take_of(room(100), "a", room(1)), Err(LimitExceeded::Share(3 * MIB, Unit::Bytes)));
        run.done("b");
        run.done("c");
        assert_eq!(run.take_of(room(100), "a", room(6)), Ok(()));
        assert_eq!(run.take_of(room(100), "a", room(1)), Err(LimitExceeded::Run(9 * MIB)));
    }

    #[test]
    fn a_claim_is_given_back_unless_it_is_kept() {
        let dir = base::temp::Folder::new().unwrap();
        let limits = config::Limits::default();
        let disk = Disk::open(&dir, ["a"].into_iter(), &limits);
        let used = || disk.lock()["a"].used;
        {
            let claim = disk.claim("a");
            assert!(claim.take(Room::file(1)) && claim.take(Room::file(10_000)));
            assert!(used().inodes >= 2);
        }
        assert_eq!(used(), Room::default());
        let claim = disk.claim("a");
        assert!(claim.take(Room::file(1)) && claim.take(Room::file(10_000)));
        claim.keep();
        drop(claim);
        assert_eq!(used(), Room { bytes: 4 * BLOCK, inodes: 2 });
        fs::create_dir_all(dir.join("a/results/n")).unwrap();
        fs::write(dir.join("a/results/n/f"), "x").unwrap();
        assert_eq!(Disk::open(&dir, ["a"].into_iter(), &limits).lock()["a"].used.inodes, 3, "over a restart");
    }
}
