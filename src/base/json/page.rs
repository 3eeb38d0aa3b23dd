//! A list document (`metadata`, `items`), read object by object: from a server, or from a file with its response.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::{Bounded, MAX_TREE_BYTES};

/// A list that passes on its items as they are read, until the receiver returns false: an object, or the bare array of
/// items that the original writes. Returns the `metadata` of an object, and whether it has items at all.
pub struct Page<'f>(pub &'f mut dyn FnMut(Value) -> bool);

impl<'de> DeserializeSeed<'de> for Page<'_> {
    type Value = (Value, bool);

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Page<'_> {
    type Value = (Value, bool);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut meta, mut is_list) = (Value::Object(serde_json::Map::new()), false);
        while let Some(key) = map.next_key::<String>()? {
            match &*key {
                "metadata" => meta = map.next_value_seed(Bounded(&mut { MAX_TREE_BYTES }))?,
                "items" => {
                    is_list = true;
                    map.next_value_seed(Items(&mut *self.0))?;
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok((meta, is_list))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Self::Value, A::Error> {
        Items(self.0).visit_seq(items).map(|()| (Value::Null, false))
    }
}

struct Items<'f>(&'f mut dyn FnMut(Value) -> bool);

impl<'de> DeserializeSeed<'de> for Items<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de> Visitor<'de> for Items<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the items of a list")
    }

    // Go writes an empty list as null.
    fn visit_none<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while let Some(item) = items.next_element_seed(Bounded(&mut { MAX_TREE_BYTES }))? {
            if !(self.0)(item) {
                return Err(A::Error::custom("the receiver failed"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_saved_list_is_an_object_with_items_or_nothing_but_items() {
        for (text, names) in [
            (r#"{"metadata": {}, "items": [{"name": "a"}, {"name": "b"}]}"#, &["a", "b"][..]),
            (r#"[{"name": "a"}, {"name": "b"}]"#, &["a", "b"]),
            (r#"{"items": null}"#, &[]),
            ("[]", &[]),
        ] {
            let mut found = Vec::new();
            let mut keep = |item: Value| {
                found.push(item["name"].as_str().unwrap_or_default().to_owned());
                true
            };
            Page(&mut keep).deserialize(&mut serde_json::Deserializer::from_str(text)).unwrap();
            assert_eq!(found, names, "{text}");
        }
        let mut keep = |_| true;
        assert!(Page(&mut keep).deserialize(&mut serde_json::Deserializer::from_str("3")).is_err());
    }
}
