//! Tests with the nodes where they failed, in natural order; the first few are named.
//!
//! Every report groups tests in this way, so that twenty nodes with one problem are one line.

use std::collections::HashMap;

use base::words::number;
use yaml::natural;

/// Maximum names in a sentence.
pub const MAX_NAMED: usize = 5;

/// The number of some nodes, and the names of the first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeList {
    first: Vec<String>,
    count: u64,
}

impl NodeList {
    /// A number of unnamed nodes.
    pub fn of_count(count: u64) -> Self {
        Self {
            first: Vec::new(),
            count,
        }
    }

    /// Adds a node that is not in the list.
    pub fn add(&mut self, node: &str) {
        if self.first.iter().any(|known| known == node) {
            return;
        }
        self.count += 1;
        let place = self
            .first
            .partition_point(|known| natural(known) < natural(node));
        if place < MAX_NAMED {
            self.first.insert(place, node.to_owned());
            self.first.truncate(MAX_NAMED);
        }
    }

    /// The number of nodes.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// `n1, n2 and 3 more`.
    pub fn text(&self) -> String {
        let named = self.first.join(", ");
        match self.count - self.first.len() as u64 {
            0 => named,
            more => format!("{named} and {} more", number(more)),
        }
    }

    /// The same after a test; empty if the test belongs to no node.
    pub fn phrase(&self) -> String {
        if self.count == 0 {
            String::new()
        } else {
            format!(" on {}", self.text())
        }
    }
}

/// A test of a plugin, and its nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TestPlace {
    /// The plugin.
    pub plugin: String,
    /// The name of the test.
    pub test: String,
    /// The nodes.
    pub nodes: NodeList,
}

impl TestPlace {
    /// The test with its nodes.
    pub fn text(&self) -> String {
        format!("{}{}", self.test.trim(), self.nodes.phrase())
    }
}

/// Tests in the order in which they were first added, each with a value.
pub struct TestPlaces<V> {
    index: HashMap<(u64, u64), usize>,
    list: Vec<(TestPlace, V)>,
}

impl<V> Default for TestPlaces<V> {
    fn default() -> Self {
        Self {
            index: HashMap::new(),
            list: Vec::new(),
        }
    }
}

impl<V> TestPlaces<V> {
    /// Adds a node to a test, or the test without a node; tests of one name differ by `variant`.
    /// Returns the value of the test.
    pub fn add(
        &mut self,
        (plugin, test, variant): (&str, &str, u64),
        node: Option<&str>,
        new: impl FnOnce() -> V,
    ) -> &mut V {
        let key = (base::digest(&(plugin, test)), variant);
        let place = *self.index.entry(key).or_insert(self.list.len());
        if place == self.list.len() {
            let first = TestPlace {
                plugin: plugin.to_owned(),
                test: test.to_owned(),
                nodes: NodeList::default(),
            };
            self.list.push((first, new()));
        }
        let (found, value) = &mut self.list[place];
        if let Some(node) = node {
            found.nodes.add(node);
        }
        value
    }

    /// The tests with their values.
    pub fn into_list(self) -> Vec<(TestPlace, V)> {
        self.list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_nodes_are_named_in_natural_order() {
        let mut nodes = NodeList::default();
        assert_eq!(nodes.phrase(), "");
        for node in ["vm-10", "vm-2", "vm-1"] {
            nodes.add(node);
        }
        assert_eq!(nodes.phrase(), " on vm-1, vm-2, vm-10");
        for number in 3..=9 {
            nodes.add(&format!("vm-{number}"));
        }
        assert_eq!(nodes.text(), "vm-1, vm-2, vm-3, vm-4, vm-5 and 5 more");
    }

    #[test]
    fn tests_gather_their_nodes() {
        let mut places = TestPlaces::default();
        for (plugin, test, node) in [
            ("p", "b", Some("n2")),
            ("p", "a", None),
            ("p", "b", Some("n1")),
            ("q", "b", Some("n1")),
        ] {
            *places.add((plugin, test, 0), node, || 0) += 1;
        }
        let texts: Vec<_> = places
            .into_list()
            .into_iter()
            .map(|(place, count)| format!("{}: {} {count}", place.plugin, place.text()))
            .collect();
        assert_eq!(texts, ["p: b on n1, n2 2", "p: a 1", "q: b on n1 1"]);
    }
}
