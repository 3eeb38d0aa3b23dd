//! Untrusted JSON as a tree of bounded size in memory: a small text can become a large tree.
//!
//! Counts the size of a [`Value`] while it is built. The caller limits the length of the text.

use std::fmt;
use std::io::Read;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Maximum size of one document in memory. The largest object in etcd takes a tenth.
pub const MAX_TREE_BYTES: usize = 128 << 20;

/// The size of a value by itself, including its slot in a list, which grows by doubling.
const VALUE_BYTES: usize = 64;
/// The size of a map that is not empty, and of each of its entries.
const MAP_BYTES: usize = 640;
const ENTRY_BYTES: usize = 64;

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
                    + map.iter().map(|(key, value)| ENTRY_BYTES + key.len() + weight(value)).sum::<usize>()
            }
            _ => 0,
        }
}

/// Deserializes any value that fits into the remaining bytes.
pub struct Bounded<'b>(pub &'b mut usize);

impl Bounded<'_> {
    fn take<E: serde::de::Error>(&mut self, bytes: usize) -> Result<(), E> {
        *self.0 = self.0.checked_sub(bytes).ok_or_else(|| E::custom("it takes too much memory"))?;
        Ok(())
    }

    fn leaf<E: serde::de::Error>(mut self, value: Value) -> Result<Value, E> {
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

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<Value, E> {
        self.leaf(value.into())
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Value, E> {
        self.leaf(value.into())
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Value, E> {
        self.leaf(value.into())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        self.leaf(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: serde::de::Error>(mut self, text: &str) -> Result<Value, E> {
        self.take(text.len())?;
        self.leaf(text.into())
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<Value, E> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_reads_what_serde_json_reads() {
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
    fn a_small_text_that_makes_a_large_tree_is_refused() {
        for (unit, count) in [("{\"\":0}", 200_000), ("0", 3_000_000), ("[]", 3_000_000), ("\"\"", 3_000_000)]
        {
            let text = format!("[{}{unit}]", format!("{unit},").repeat(count));
            let error = from_slice(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains("it takes too much memory"), "{unit}: {error}");
        }
        assert!(weight(&from_slice(br#"[{"a":"b"}]"#).unwrap()) > MAP_BYTES);
    }
}
