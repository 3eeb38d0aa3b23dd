//! Who has how much of the disk: what each result takes, and whether it may take more.
//!
//! Each plugin gets an equal part of what the disk had when the run began, each of its results an equal part of that. A
//! result may always take its own part, and more as long as what is left would still give every other result that is
//! not settled its own: so one that needs much gets it, and none takes another's, of whatever plugin. A node that joins
//! later gets an equal part of what its plugin's results have left of theirs. What an upload takes is claimed before it
//! is written, and given back unless the upload is kept. Starts no thread; its lock is held for arithmetic alone.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::limits::{LimitExceeded, Unit};
use crate::{config, layout};
use base::sys;
use client::protocol::ResultId;

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

    fn part(self, count: usize) -> Self {
        let count = count.max(1) as u64;
        Self { bytes: self.bytes / count, inodes: self.inodes / count }
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

/// What a result has.
#[derive(Default)]
struct Held {
    used: Room,
    /// What it may always take; nothing once it is settled.
    share: Room,
}

impl Held {
    fn owed(&self) -> Room {
        self.share.less(self.used)
    }
}

/// The disk of a run.
pub(super) struct Disk {
    dir: PathBuf,
    reserve: Room,
    /// Of one plugin, where the configuration says so.
    cap: Room,
    /// Of all results.
    run: u64,
    results: Mutex<HashMap<ResultId, Held>>,
}

impl Disk {
    /// The disk of the plugins' folders in `dir`, which may hold results from before a restart.
    pub(super) fn open(dir: &Path, ids: &[ResultId], limits: &config::Limits) -> Self {
        let unless_zero = |limit: u64| if limit == 0 { u64::MAX } else { limit };
        let mut plugins: HashMap<&str, usize> = HashMap::new();
        let mut used = Room::default();
        let mut results: HashMap<ResultId, Held> = HashMap::new();
        for id in ids {
            let path = dir.join(&id.plugin).join(layout::RESULTS).join(&id.node);
            let held = Held { used: taken(&path), share: Room::default() };
            used = used.plus(held.used);
            if results.insert(id.clone(), held).is_none() {
                *plugins.entry(&id.plugin).or_default() += 1;
            }
        }
        let reserve = Room { bytes: limits.results.free_bytes, inodes: limits.results.free_inodes };
        let run = unless_zero(limits.run.bytes / 2);
        let all = free(dir).less(reserve).plus(used);
        let all = Room { bytes: all.bytes.min(run), ..all };
        for (id, held) in &mut results {
            held.share = all.part(plugins.len()).part(plugins[id.plugin.as_str()]);
        }
        Self {
            dir: dir.to_owned(),
            reserve,
            cap: Room { bytes: unless_zero(limits.plugin.bytes), inodes: unless_zero(limits.plugin.inodes) },
            run,
            results: Mutex::new(results),
        }
    }

    /// A disk without limits, for what must be written as long as it can.
    pub(super) fn endless() -> Self {
        let all = Room { bytes: u64::MAX, inodes: u64::MAX };
        let none = Room::default();
        Self { dir: PathBuf::new(), reserve: none, cap: all, run: u64::MAX, results: Mutex::default() }
    }

    /// Expects one more result, of a node that has joined.
    pub(super) fn expect(&self, id: &ResultId) {
        let mut results = self.lock();
        let same = results.iter_mut().filter(|(other, _)| other.plugin == id.plugin);
        let mut owed: Vec<_> =
            same.map(|(_, held)| held).filter(|held| held.owed() != Room::default()).collect();
        let sum = owed.iter().fold(Room::default(), |sum, held| sum.plus(held.owed()));
        let share = sum.part(owed.len() + 1);
        for held in &mut owed {
            held.share = held.used.plus(share);
        }
        results.insert(id.clone(), Held { used: Room::default(), share });
    }

    /// Nothing yet, for an upload of `id`.
    pub(super) fn claim<'a>(&'a self, id: &'a ResultId) -> Claim<'a> {
        Claim { disk: self, id, taken: Cell::default(), left: Cell::default(), hit: RefCell::default() }
    }

    /// Notes that `id` is settled.
    pub(super) fn done(&self, id: &ResultId) {
        if let Some(held) = self.lock().get_mut(id) {
            held.share = Room::default();
        }
    }

    fn take(&self, id: &ResultId, more: Room) -> Result<(), LimitExceeded> {
        self.take_of(free(&self.dir), id, more)
    }

    fn take_of(&self, free: Room, id: &ResultId, more: Room) -> Result<(), LimitExceeded> {
        if let Some(unit) = free.short_of(self.reserve.plus(more)) {
            return Err(LimitExceeded::Disk(free.of(unit), self.reserve.of(unit), unit));
        }
        let mut results = self.lock();
        let (mut sum, mut plugin) = (0, more);
        for (other, held) in results.iter() {
            sum = held.used.bytes.saturating_add(sum);
            if other.plugin == id.plugin {
                plugin = plugin.plus(held.used);
            }
        }
        if more.bytes.saturating_add(sum) > self.run {
            return Err(LimitExceeded::Run(self.run));
        }
        if let Some(unit) = self.cap.short_of(plugin) {
            return Err(LimitExceeded::Plugin(self.cap.of(unit), unit));
        }
        let (used, share) = results.get(id).map(|held| (held.used, held.share)).unwrap_or_default();
        let used = used.plus(more);
        if share.short_of(used).is_some() {
            let others = results.iter().filter(|(other, _)| *other != id);
            let owed = others.fold(Room::default(), |sum, (_, held)| sum.plus(held.owed()));
            let left =
                Room { bytes: free.bytes.min(self.reserve.bytes.saturating_add(self.run - sum)), ..free };
            if let Some(unit) = left.short_of(self.reserve.plus(owed).plus(more)) {
                return Err(LimitExceeded::Share(share.of(unit), unit));
            }
        }
        results.entry(id.clone()).or_default().used = used;
        Ok(())
    }

    fn give_back(&self, id: &ResultId, room: Room) {
        if let Some(held) = self.lock().get_mut(id) {
            held.used = held.used.less(room);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ResultId, Held>> {
        self.results.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What one upload has taken of the disk; given back when it is dropped.
pub(super) struct Claim<'a> {
    disk: &'a Disk,
    id: &'a ResultId,
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
            match self.disk.take(self.id, wanted) {
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
        match self.disk.take(self.id, more) {
            Ok(()) => {
                self.disk.give_back(self.id, more);
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
        self.disk.give_back(self.id, self.left.take());
        self.taken.set(Room::default());
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.disk.give_back(self.id, self.taken.get());
    }
}

fn free(dir: &Path) -> Room {
    Room { bytes: sys::free_bytes(dir), inodes: sys::free_inodes(dir) }
}

/// What a file or folder takes, as far as it can be read.
fn taken(path: &Path) -> Room {
    let Ok(metadata) = fs::symlink_metadata(path) else { return Room::default() };
    let below = if metadata.is_dir() { fs::read_dir(path).ok() } else { None };
    let entries = below.into_iter().flatten().flatten();
    entries.fold(Room::file(metadata.len()), |sum, entry| sum.plus(taken(&entry.path())))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn room(mib: u64) -> Room {
        Room { bytes: mib * MIB, inodes: mib }
    }

    fn id(plugin: &str) -> ResultId {
        ResultId::global(plugin)
    }

    /// Three plugins on a disk with 90 MiB and as many inodes, besides a reserve of ten.
    fn disk(change: impl Fn(&mut Disk)) -> Disk {
        let limits = config::Limits::default();
        let mut disk = Disk::open(Path::new("/nonexistent"), &["a", "b", "c"].map(id), &limits);
        (disk.reserve, disk.run) = (room(10), u64::MAX);
        disk.lock().values_mut().for_each(|held| held.share = room(30));
        change(&mut disk);
        disk
    }

    #[test]
    fn what_others_have_not_used_of_theirs_is_not_taken() {
        let disk = disk(|_| {});
        let take = |left: u64, plugin: &str, mib: u64| disk.take_of(room(left), &id(plugin), room(mib));
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
        let held = |mib| Held { share: room(mib), ..Held::default() };
        *disk.lock() = shares.into_iter().map(|(id, mib)| (id, held(mib))).collect();
        let take = |left: u64, id: &ResultId, mib: u64| disk.take_of(room(left), id, room(mib));
        let full = Err(LimitExceeded::Share(15 * MIB, Unit::Bytes));
        assert_eq!(take(100, &ids[0], 16), full);
        assert_eq!(take(100, &ids[0], 15), Ok(()));
        assert_eq!(take(85, &ids[0], 1), full);
        disk.expect(&node("late"));
        let part = |id: &ResultId| disk.lock()[id].share;
        assert_eq!(
            [&ids[1], &ids[2], &node("late")].map(part),
            [room(10); 3],
            "what was left, in equal parts"
        );
        assert_eq!(part(&id("job")), room(45), "the part of another plugin stays");
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
        assert_eq!(ids.map(|id| disk.lock()[&id].share.bytes), [4 << 10, 2 << 10, 2 << 10]);
    }

    #[test]
    fn inodes_are_shared_as_bytes_are() {
        let disk = disk(|_| {});
        let inodes = |inodes| Room { bytes: 0, inodes };
        assert_eq!(disk.take_of(room(100), &id("a"), inodes(30)), Ok(()));
        assert_eq!(disk.take_of(room(70), &id("a"), inodes(1)), Err(LimitExceeded::Share(30, Unit::Inodes)));
        assert_eq!(
            disk.take_of(room(10), &id("b"), inodes(1)),
            Err(LimitExceeded::Disk(10, 10, Unit::Inodes))
        );
    }

    #[test]
    fn the_limits_of_a_plugin_and_of_the_run_hold_whatever_there_is() {
        let capped = disk(|disk| disk.cap = Room { bytes: 5 * MIB, inodes: 3 });
        assert_eq!(capped.take_of(room(100), &id("a"), room(4)), Err(LimitExceeded::Plugin(3, Unit::Inodes)));
        assert_eq!(
            capped.take_of(room(100), &id("a"), room(6)),
            Err(LimitExceeded::Plugin(5 * MIB, Unit::Bytes))
        );
        let run = disk(|disk| {
            disk.run = 9 * MIB;
            disk.lock().values_mut().for_each(|held| held.share = room(3));
        });
        assert_eq!(run.take_of(room(100), &id("a"), room(3)), Ok(()));
        assert_eq!(
            run.take_of(room(100), &id("a"), room(1)),
            Err(LimitExceeded::Share(3 * MIB, Unit::Bytes))
        );
        run.done(&id("b"));
        run.done(&id("c"));
        assert_eq!(run.take_of(room(100), &id("a"), room(6)), Ok(()));
        assert_eq!(run.take_of(room(100), &id("a"), room(1)), Err(LimitExceeded::Run(9 * MIB)));
    }

    #[test]
    fn a_claim_is_given_back_unless_it_is_kept() {
        let dir = base::temp::Folder::new().unwrap();
        let limits = config::Limits::default();
        let a = id("a");
        let disk = Disk::open(&dir, std::slice::from_ref(&a), &limits);
        let used = || disk.lock()[&a].used;
        {
            let claim = disk.claim(&a);
            assert!(claim.take(Room::file(1)) && claim.take(Room::file(10_000)));
            assert!(used().inodes >= 2);
        }
        assert_eq!(used(), Room::default());
        let claim = disk.claim(&a);
        assert!(claim.take(Room::file(1)) && claim.take(Room::file(10_000)));
        claim.keep();
        drop(claim);
        assert_eq!(used(), Room { bytes: 4 * BLOCK, inodes: 2 });
        fs::create_dir_all(dir.join("a/results/global")).unwrap();
        fs::write(dir.join("a/results/global/f"), "x").unwrap();
        assert_eq!(
            Disk::open(&dir, std::slice::from_ref(&a), &limits).lock()[&a].used.inodes,
            2,
            "over a restart"
        );
    }
}
