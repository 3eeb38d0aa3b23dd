//! A resource with a limit per key: connections of an address, memory of a plugin, reviews of a
//! pod.
//!
//! Pure arithmetic behind a lock. Callers choose keys and report refusals.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex};

use crate::lock;

/// A total, and the share that one key may hold. Clones share the held amounts.
#[derive(Clone)]
pub struct Quota<K>(Arc<Inner<K>>);

struct Inner<K> {
    total: u64,
    per_key: u64,
    held: Mutex<Held<K>>,
}

struct Held<K> {
    sum: u64,
    by_key: HashMap<K, u64>,
}

/// An amount that a key holds; dropping the permit releases it.
#[must_use = "a dropped permit is released"]
pub struct Permit<K: Eq + Hash> {
    quota: Arc<Inner<K>>,
    key: K,
    amount: u64,
}

impl<K: Eq + Hash + Clone> Quota<K> {
    /// An unused quota.
    pub fn new(total: u64, per_key: u64) -> Self {
        let held = Mutex::new(Held {
            sum: 0,
            by_key: HashMap::new(),
        });
        Self(Arc::new(Inner {
            total,
            per_key,
            held,
        }))
    }

    /// Acquires `amount` for `key`, unless the total or the share of `key` would be exceeded.
    pub fn take(&self, key: &K, amount: u64) -> Option<Permit<K>> {
        let mut held = lock(&self.0.held);
        let (sum, own) = self.0.with(&held, key, amount)?;
        held.sum = sum;
        held.by_key.insert(key.clone(), own);
        Some(Permit {
            quota: Arc::clone(&self.0),
            key: key.clone(),
            amount,
        })
    }

    /// The amount that `key` holds.
    pub fn held(&self, key: &K) -> u64 {
        lock(&self.0.held).by_key.get(key).copied().unwrap_or(0)
    }

    /// The amount that all keys hold.
    pub fn sum(&self) -> u64 {
        lock(&self.0.held).sum
    }

    /// Whether `key` could acquire `amount` now.
    pub fn has(&self, key: &K, amount: u64) -> bool {
        self.0.with(&lock(&self.0.held), key, amount).is_some()
    }
}

impl<K: Eq + Hash> Inner<K> {
    /// The amounts that all keys and `key` would hold with `amount` more, within the limits.
    fn with(&self, held: &Held<K>, key: &K, amount: u64) -> Option<(u64, u64)> {
        let sum = held
            .sum
            .checked_add(amount)
            .filter(|sum| *sum <= self.total)?;
        let key_sum = held.by_key.get(key).copied().unwrap_or(0);
        let key_sum = key_sum
            .checked_add(amount)
            .filter(|key_sum| *key_sum <= self.per_key)?;
        Some((sum, key_sum))
    }
}

impl<K: Eq + Hash> Drop for Permit<K> {
    fn drop(&mut self) {
        let mut held = lock(&self.quota.held);
        held.sum -= self.amount;
        if let Some(key_sum) = held.by_key.get_mut(&self.key) {
            *key_sum -= self.amount;
            // Keys come from the network: remove those that hold nothing.
            if *key_sum == 0 {
                held.by_key.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn total_and_share_are_limits_and_drops_release() {
        let quota = Quota::new(10, 6);
        let first = quota.take(&"a", 6).unwrap();
        assert!(
            quota.take(&"a", 1).is_none() && !quota.has(&"a", 1),
            "the part of one key"
        );
        let second = quota.take(&"b", 4).unwrap();
        assert!(quota.take(&"c", 1).is_none(), "the total");
        drop(first);
        assert_eq!((quota.held(&"a"), quota.held(&"b")), (0, 4));
        assert!(quota.take(&"c", 6).is_some() && quota.take(&"c", u64::MAX).is_none());
        drop(second);
        assert!(
            lock(&quota.0.held).by_key.is_empty(),
            "keys that hold nothing are forgotten"
        );
    }
}
