//! Typed values from a tree: a value of the wrong type is an error with its position, its path, and the expected type.
//!
//! Values override those that already exist, the way Go reads JSON into a struct: null clears lists, maps and optional
//! values and leaves everything else alone; lists are replaced, maps are merged.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Content, Error, Key, Node};
use crate::clock;

/// A field that a value can override.
pub trait Overlay {
    /// Overrides it with the value at `path`.
    fn overlay(&mut self, path: &str, node: &Node) -> Result<(), Error>;
}

/// Reads a value on its own.
pub fn read<T: Overlay + Default>(path: &str, node: &Node) -> Result<T, Error> {
    let mut value = T::default();
    value.overlay(path, node).map(|()| value)
}

/// The error for a value of the wrong kind.
pub fn wrong(path: &str, node: &Node, needed: &str) -> Error {
    node.place.error(format!("`{path}` must be {needed}, not {}", node.kind()))
}

/// The entries of a map.
pub fn entries<'n>(path: &str, node: &'n Node) -> Result<&'n [(Key, Node)], Error> {
    match &node.content {
        Content::Map(entries) => Ok(entries),
        _ => Err(wrong(path, node, "a map")),
    }
}

/// Applies `item` to each item of a list.
pub fn list<T>(
    path: &str,
    node: &Node,
    mut item: impl FnMut(&str, &Node) -> Result<T, Error>,
) -> Result<Vec<T>, Error> {
    let Content::List(items) = &node.content else { return Err(wrong(path, node, "a list")) };
    items.iter().enumerate().map(|(at, node)| item(&format!("{path}[{at}]"), node)).collect()
}

/// Text; values that look like another type must be quoted.
pub fn text<'n>(path: &str, node: &'n Node) -> Result<&'n str, Error> {
    let plain = match &node.content {
        Content::Text(text) => return Ok(text),
        Content::Number(number) => number.to_string(),
        Content::Bool(flag) => flag.to_string(),
        _ => return Err(wrong(path, node, "text")),
    };
    let words = format!("`{path}` must be text, not {}: quote it, as in \"{plain}\"", node.kind());
    Err(node.place.error(words))
}

impl Overlay for String {
    fn overlay(&mut self, path: &str, node: &Node) -> Result<(), Error> {
        if !node.is_null() {
            text(path, node)?.clone_into(self);
        }
        Ok(())
    }
}

impl Overlay for bool {
    fn overlay(&mut self, path: &str, node: &Node) -> Result<(), Error> {
        match &node.content {
            Content::Null => {}
            Content::Bool(flag) => *self = *flag,
            _ => return Err(wrong(path, node, "true or false without quotes")),
        }
        Ok(())
    }
}

impl Overlay for i64 {
    fn overlay(&mut self, path: &str, node: &Node) -> Result<(), Error> {
        match &node.content {
            Content::Null => {}
            Content::Number(number) if number.is_i64() => *self = number.as_i64().unwrap_or_default(),
            _ => return Err(wrong(path, node, "a whole number without quotes")),
        }
        Ok(())
    }
}

impl Overlay for u64 {
    fn overlay(&mut self, path: &str, node: &Node) -> Result<(), Error> {
        let mut count = i64::try_from(*self).unwrap_or(i64::MAX);
        count.overlay(path, node)?;
        let negative = |_| node.place.error(format!("`{path}` is {count} but cannot be negative"));
        *self = Self::try_from(count).map_err(negative)?;
        Ok(())
    }
}

impl Overlay for f64 {
    fn overlay(&mut self, path: &str, node: &Node) -> Result<(), Error> {
        match &node.content {
            Content::Null => {}
            Content::Number(number) => *self = number.as_f64().unwrap_or_default(),
            _ => return Err(wrong(path, node, "a number without quotes")),
        }
        Ok(())
    }
}

impl Overlay for Duration {
    fn overlay(&mut self, path: &str, node: &Node) -> Result<(), Error> {
        match &node.content {
            Content::Null => {}
            Content::Text(text) => {
                let words = || format!("`{path}` is not a duration; write it as 90s, 5m or 1h30m");
                *self = clock::parse_duration(text).ok_or_else(|| node.place.error(words()))?;
            }
            _ => return Err(wrong(path, node, "a duration in quotes, as in \"5m\"")),
        }
        Ok(())
    }
}

impl<T: Overlay + Default> Overlay for Option<T> {
    fn overlay(&mut self, path: &str, node: &Node) -> Result<(), Error> {
        *self = if node.is_null() { None } else { Some(read(path, node)?) };
        Ok(())
    }
}

impl<T: Overlay + Default> Overlay for Vec<T> {
    fn overlay(&mut self, path: &str, node: &Node) -> Result<(), Error> {
        *self = if node.is_null() { Self::new() } else { list(path, node, read)? };
        Ok(())
    }
}

impl<T: Overlay + Default> Overlay for BTreeMap<String, T> {
    fn overlay(&mut self, path: &str, node: &Node) -> Result<(), Error> {
        if node.is_null() {
            self.clear();
            return Ok(());
        }
        for (key, value) in entries(path, node)? {
            self.insert(key.text.clone(), read(&format!("{path}.{}", key.text), value)?);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::yaml::document;

    #[test]
    fn null_clears_collections_and_leaves_single_values() {
        let null = document("~").unwrap();
        let (mut name, mut count, mut list) = ("a".to_owned(), 3_u64, vec![1_i64]);
        let mut wish = Some(vec!["b".to_owned()]);
        let mut map = BTreeMap::from([("c".to_owned(), 1.5)]);
        let fields: [&mut dyn Overlay; 5] = [&mut name, &mut count, &mut list, &mut wish, &mut map];
        for field in fields {
            field.overlay("x", &null).unwrap();
        }
        assert_eq!((name.as_str(), count, list.len(), wish, map.len()), ("a", 3, 0, None, 0));
    }

    #[test]
    fn lists_are_replaced_and_maps_are_merged() {
        let mut list = vec!["a".to_owned()];
        list.overlay("x", &document("[b, ~]").unwrap()).unwrap();
        assert_eq!(list, ["b", ""]);
        let mut map = BTreeMap::from([("a".to_owned(), 1_i64), ("b".to_owned(), 2)]);
        map.overlay("x", &document("{b: 3, c: 4}").unwrap()).unwrap();
        assert_eq!(map.into_values().collect::<Vec<_>>(), [1, 3, 4]);
    }

    #[test]
    fn a_wrong_type_is_reported_with_its_path() {
        fn refuse<T: Overlay + Default>(content: &str, words: &str) {
            let error = read::<T>("x", &document(content).unwrap()).map(drop).unwrap_err();
            assert!(error.message.contains(words), "{content}: {error}");
        }
        refuse::<String>("3", "`x` must be text, not a number: quote it, as in \"3\"");
        refuse::<String>("[a]", "`x` must be text, not a list");
        refuse::<bool>("'true'", "without quotes");
        refuse::<i64>("1.5", "a whole number");
        refuse::<u64>("-1", "cannot be negative");
        refuse::<f64>("a", "a number without quotes");
        refuse::<Duration>("5", "a duration in quotes");
        refuse::<Duration>("soon", "write it as 90s");
        refuse::<Vec<String>>("[a, {b: c}]", "`x[1]` must be text, not a map");
        refuse::<BTreeMap<String, bool>>("{a: {}}", "`x.a` must be true or false");
    }
}
