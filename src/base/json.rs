//! JSON literals in little machine code; untrusted JSON read into bounded memory, lists object by
//! object.
//!
//! Owns the macro [`json`](macro@json), which replaces `serde_json`'s: this program has hundreds of
//! keys, and theirs expands each into a conversion that may fail, an allocation and a drop. Counts
//! the size of a [`Value`] while it is built, since a small text can become a large tree; the
//! caller limits the length of the text.

use std::fmt;
use std::io::Read;
use std::marker::PhantomData;

use serde::Serialize;
use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::{Map, Number, Value};

/// A [`Value`]: `json!({"key": expression, "list": [1, 2], "nothing": null})`.
#[doc(hidden)]
#[macro_export]
macro_rules! __json {
    (@members $map:ident $(,)?) => {};
    (@members $map:ident $key:tt: $value:tt $(, $($rest:tt)*)?) => {
        $crate::json::insert(&mut $map, $key, $crate::json::json!($value));
        $crate::json::json!(@members $map $($($rest)*)?);
    };
    (@members $map:ident $key:tt: $value:expr $(, $($rest:tt)*)?) => {
        $crate::json::insert(&mut $map, $key, $crate::json::value(&$value));
        $crate::json::json!(@members $map $($($rest)*)?);
    };
    (@elements $list:ident $(,)?) => {};
    (@elements $list:ident $value:tt $(, $($rest:tt)*)?) => {
        $crate::json::push(&mut $list, $crate::json::json!($value));
        $crate::json::json!(@elements $list $($($rest)*)?);
    };
    (@elements $list:ident $value:expr $(, $($rest:tt)*)?) => {
        $crate::json::push(&mut $list, $crate::json::value(&$value));
        $crate::json::json!(@elements $list $($($rest)*)?);
    };
    (null) => { serde_json::Value::Null };
    ({}) => { serde_json::Value::Object(serde_json::Map::new()) };
    ({$($members:tt)+}) => {{
        let mut map = serde_json::Map::new();
        $crate::json::json!(@members map $($members)+);
        serde_json::Value::Object(map)
    }};
    ([]) => { serde_json::Value::Array(Vec::new()) };
    ([$($elements:tt)+]) => {{
        let mut list = Vec::new();
        $crate::json::json!(@elements list $($elements)+);
        serde_json::Value::Array(list)
    }};
    ($value:expr) => { $crate::json::value(&$value) };
}

pub use __json as json;

/// A function, so that all keys share one copy.
#[inline(never)]
pub fn insert(map: &mut Map<String, Value>, key: &str, value: Value) {
    map.insert(key.to_owned(), value);
}

/// A function, so that all elements share one copy.
#[inline(never)]
pub fn push(list: &mut Vec<Value>, value: Value) {
    list.push(value);
}

/// A function, so that there is one copy per type. Maps with non-text keys, which JSON cannot
/// express, become null.
#[inline(never)]
pub fn value<T: Serialize + ?Sized>(from: &T) -> Value {
    serde_json::to_value(from).unwrap_or_default()
}

/// The elements of an iterator as a list.
pub fn list<T: Serialize>(elements: impl IntoIterator<Item = T>) -> Value {
    elements
        .into_iter()
        .map(|element| value(&element))
        .collect()
}

/// The list under a key of an object, created if missing.
pub fn list_in<'v>(object: &'v mut Value, key: &str) -> &'v mut Vec<Value> {
    let slot = &mut object[key];
    if !slot.is_array() {
        *slot = Value::Array(Vec::new());
    }
    slot.as_array_mut().expect("just made a list")
}

/// On one line, escaping the characters that Go escapes: some programs compare the text.
pub fn line<T: Serialize + ?Sized>(from: &T) -> String {
    // This cannot fail: all keys are text.
    escaped(serde_json::to_string(from).unwrap_or_default())
}

/// Escapes the characters that Go escapes in JSON.
pub fn escaped(mut text: String) -> String {
    for (sign, escape) in [
        ('<', "\\u003c"),
        ('>', "\\u003e"),
        ('&', "\\u0026"),
        ('\u{2028}', "\\u2028"),
        ('\u{2029}', "\\u2029"),
    ] {
        if text.contains(sign) {
            text = text.replace(sign, escape);
        }
    }
    text
}

/// Maximum size of one document in memory. The largest object in etcd takes a tenth.
pub const MAX_TREE_BYTES: usize = 128 << 20;

/// The size of a value by itself, including its slot in a list, which grows by doubling.
const VALUE_BYTES: usize = 64;
/// The size of a map that is not empty, and of each of its entries.
const MAP_BYTES: usize = 640;
const ENTRY_BYTES: usize = 64;

/// Maximum number of entries in a list that grows with a cluster: nodes, pods or results.
const MAX_ENTRIES: usize = 50_000;

/// Reads a document of at most [`MAX_TREE_BYTES`] in memory.
pub fn from_slice(text: &[u8]) -> serde_json::Result<Value> {
    document(&mut serde_json::Deserializer::from_slice(text))
}

/// Reads a document like [`from_slice`], from a reader to its end.
pub fn from_reader(reader: impl Read) -> serde_json::Result<Value> {
    document(&mut serde_json::Deserializer::from_reader(reader))
}

fn document<'de, R: serde_json::de::Read<'de>>(
    reader: &mut serde_json::Deserializer<R>,
) -> serde_json::Result<Value> {
    let value = Bounded(&mut { MAX_TREE_BYTES }).deserialize(&mut *reader)?;
    reader.end().map(|()| value)
}

/// Estimates the memory of a tree.
pub fn weight(value: &Value) -> usize {
    VALUE_BYTES
        + match value {
            Value::String(text) => text.len(),
            Value::Array(list) => list.iter().map(weight).sum(),
            Value::Object(map) if map.is_empty() => 0,
            Value::Object(map) => {
                MAP_BYTES
                    + map
                        .iter()
                        .map(|(key, value)| ENTRY_BYTES + key.len() + weight(value))
                        .sum::<usize>()
            }
            _ => 0,
        }
}

/// Deserializes any value that fits into the remaining bytes.
pub struct Bounded<'b>(pub &'b mut usize);

impl Bounded<'_> {
    fn take<E: Error>(&mut self, bytes: usize) -> Result<(), E> {
        *self.0 = self
            .0
            .checked_sub(bytes)
            .ok_or_else(|| E::custom("it takes too much memory"))?;
        Ok(())
    }

    fn leaf<E: Error>(mut self, value: Value) -> Result<Value, E> {
        self.take(VALUE_BYTES)?;
        Ok(value)
    }
}

impl<'de> DeserializeSeed<'de> for Bounded<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Bounded<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        self.leaf(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        self.leaf(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        self.leaf(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        self.leaf(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: Error>(mut self, text: &str) -> Result<Value, E> {
        self.take(text.len())?;
        self.leaf(text.into())
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        self.leaf(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<Value, A::Error> {
        self.take(VALUE_BYTES)?;
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(Bounded(self.0))? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut entries: A) -> Result<Value, A::Error> {
        self.take(VALUE_BYTES)?;
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            self.take(key.len() + ENTRY_BYTES + if map.is_empty() { MAP_BYTES } else { 0 })?;
            let value = entries.next_value_seed(Bounded(self.0))?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

/// Deserializes at most `MAX_ENTRIES` entries, none from `null`.
pub fn entries<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    input: D,
) -> Result<Vec<T>, D::Error> {
    struct Entries<T>(PhantomData<T>);
    impl<'de, T: Deserialize<'de>> Visitor<'de> for Entries<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list")
        }

        fn visit_unit<E>(self) -> Result<Vec<T>, E> {
            Ok(Vec::new())
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<T>, A::Error> {
            let mut list = Vec::new();
            while let Some(item) = items.next_element()? {
                if list.len() == MAX_ENTRIES {
                    return Err(A::Error::custom(format_args!(
                        "a list has more than {MAX_ENTRIES} entries"
                    )));
                }
                list.push(item);
            }
            Ok(list)
        }
    }
    input.deserialize_any(Entries(PhantomData))
}

/// A list that passes on its items as they are read, until the receiver returns false: an object,
/// or the bare array of items that the original writes. Returns the `metadata` of an object, and
/// whether it has a list of items.
pub struct Page<'f>(pub &'f mut dyn FnMut(Value) -> bool);

impl<'de> DeserializeSeed<'de> for Page<'_> {
    type Value = (Option<Value>, bool);

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Page<'_> {
    type Value = (Option<Value>, bool);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut meta, mut is_list) = (json!({}), false);
        while let Some(key) = map.next_key::<String>()? {
            match &*key {
                "metadata" => meta = map.next_value_seed(Bounded(&mut { MAX_TREE_BYTES }))?,
                // An object in place of the items makes the whole invalid.
                "items" => is_list = map.next_value_seed(Page(&mut *self.0))?.0.is_none(),
                _ => _ = map.next_value::<IgnoredAny>()?,
            }
        }
        Ok((Some(meta), is_list))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        while let Some(item) = items.next_element_seed(Bounded(&mut { MAX_TREE_BYTES }))? {
            if !(self.0)(item) {
                return Err(A::Error::custom("the receiver failed"));
            }
        }
        Ok((None, false))
    }

    // Go writes an empty list as null.
    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok((None, false))
    }
}

/// Reads a value that may be null instead of absent.
pub fn nullable<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    input: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(input)?.unwrap_or_default())
}

/// Whether a value may be left out.
pub fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Reads a string in which bytes that are not UTF-8 are replaced.
pub fn lossy<'de, D: Deserializer<'de>, T>(
    input: D,
    make: impl FnOnce(&str) -> T,
) -> Result<T, D::Error> {
    struct Bytes<F>(F);
    impl<T, F: FnOnce(&str) -> T> Visitor<'_> for Bytes<F> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a string")
        }

        fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<T, E> {
            self.visit_str(&String::from_utf8_lossy(bytes))
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
            Ok((self.0)(text))
        }
    }
    input.deserialize_bytes(Bytes(make))
}

#[cfg(test)]
mod tests {
    use serde_json::json as theirs;

    #[test]
    fn output_equals_that_of_serde_json() {
        const KEY: &str = "of a constant";
        let (text, list) = ("t", vec![1, 2]);
        let ours = super::json!({
            "null": null, "no": false, "text": text, "list": list, KEY: 1.5,
            "inner": {"empty": {}, "none": [], "some": [null, {"a": [1,],},]},
            "expression": text.len() + 1, "some": Some("s"), "nothing": None::<u8>,
        });
        let expected = theirs!({
            "null": null, "no": false, "text": text, "list": list, KEY: 1.5,
            "inner": {"empty": {}, "none": [], "some": [null, {"a": [1,],},]},
            "expression": text.len() + 1, "some": Some("s"), "nothing": None::<u8>,
        });
        assert_eq!(ours, expected);
        assert_eq!(
            [
                super::json!(null),
                super::json!([]),
                super::json!({}),
                super::json!(text)
            ],
            [theirs!(null), theirs!([]), theirs!({}), theirs!(text)]
        );
    }
}

#[cfg(test)]
mod bounded_tests {
    use super::*;

    #[test]
    fn input_is_parsed_like_serde_json() {
        for text in [
            "null",
            "[]",
            "{}",
            r#"{"a":[1,-2,3.5,1e300,18446744073709551615,-9223372036854775808],"b":{"":"\u0000é"},"a":true}"#,
            r#"[[[[{"x":[{}]}]]]]"#,
        ] {
            let expected: Value = serde_json::from_str(text).unwrap();
            assert_eq!(from_slice(text.as_bytes()).unwrap(), expected);
            assert_eq!(from_reader(text.as_bytes()).unwrap(), expected);
        }
        for text in ["", "[1", "{} x", "[1,]", "nul"] {
            assert!(from_slice(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn small_text_that_expands_to_a_large_tree_is_refused() {
        for (unit, count) in [
            ("{\"\":0}", 200_000),
            ("0", 3_000_000),
            ("[]", 3_000_000),
            ("\"\"", 3_000_000),
        ] {
            let text = format!("[{}{unit}]", format!("{unit},").repeat(count));
            let error = from_slice(text.as_bytes()).unwrap_err().to_string();
            assert!(
                error.contains("it takes too much memory"),
                "{unit}: {error}"
            );
        }
        assert!(weight(&from_slice(br#"[{"a":"b"}]"#).unwrap()) > MAP_BYTES);
    }
}

#[cfg(test)]
mod page_tests {
    use super::*;

    #[test]
    fn saved_list_is_an_object_with_items_or_a_plain_list() {
        for (text, names) in [
            (
                r#"{"metadata": {}, "items": [{"name": "a"}, {"name": "b"}]}"#,
                &["a", "b"][..],
            ),
            (r#"[{"name": "a"}, {"name": "b"}]"#, &["a", "b"]),
            (r#"{"items": null}"#, &[]),
            ("[]", &[]),
        ] {
            let mut found = Vec::new();
            let mut keep = |item: Value| {
                found.push(item["name"].as_str().unwrap_or_default().to_owned());
                true
            };
            Page(&mut keep)
                .deserialize(&mut serde_json::Deserializer::from_str(text))
                .unwrap();
            assert_eq!(found, names, "{text}");
        }
        let mut keep = |_| true;
        assert!(
            Page(&mut keep)
                .deserialize(&mut serde_json::Deserializer::from_str("3"))
                .is_err()
        );
    }
}
