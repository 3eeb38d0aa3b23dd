//! JSON Schemas of types, found by asking serde: a probe in place of a value records what a type asks for.
//!
//! One question per place: no probe is a valid value, so that reading stops at the first answer. Follows the rules of
//! [`super::typed`]: null is accepted everywhere, and a struct whose name begins with a small letter has no
//! other keys.

use std::cell::RefCell;
use std::iter::once;

use serde::de::value::{Error, MapDeserializer, SeqDeserializer};
use serde::de::{DeserializeOwned, Deserializer, Error as _, Expected, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::{Map, Value, json};

/// The schema of what a type reads.
pub fn of<T: DeserializeOwned>() -> Value {
    let mut whole = Value::Null;
    let mut open = vec![Vec::new()];
    while let Some(path) = open.pop() {
        let found = RefCell::default();
        let _ = T::deserialize(Probe { path: &path, found: &found });
        let (schema, below) = found.into_inner();
        let place = path.iter().fold(&mut whole, |value, key: &String| &mut value[key]);
        *place = schema;
        open.extend(below.into_iter().map(|steps| [&path[..], &steps].concat()));
    }
    whole
}

/// Adds the values of `value` to a schema as defaults.
pub fn with_defaults(schema: &mut Value, value: &Value) {
    match (schema.get_mut("properties").and_then(Value::as_object_mut), value) {
        (_, Value::Null) => {}
        (Some(properties), Value::Object(values)) => properties
            .iter_mut()
            .for_each(|(key, schema)| with_defaults(schema, values.get(key).unwrap_or(&Value::Null))),
        _ => schema["default"] = value.clone(),
    }
}

/// A schema, and where others belong in it.
type Found = (Value, Vec<Vec<String>>);

/// Stands in for a value on the way to a place in the schema.
struct Probe<'p> {
    path: &'p [String],
    found: &'p RefCell<Found>,
}

impl Probe<'_> {
    fn has_arrived(&self) -> bool {
        self.path.is_empty()
    }

    fn after(&self, steps: usize) -> Self {
        Self { path: &self.path[steps..], ..*self }
    }

    /// Records the answer.
    fn end<T>(self, schema: Value, below: Vec<Vec<String>>) -> Result<T, Error> {
        self.found.replace((schema, below));
        Err(Error::custom("recorded"))
    }

    /// Records a single value; what a visitor expects beyond its type becomes the description.
    fn single<'de, V: Visitor<'de>>(self, visitor: &V, kind: &str) -> Result<V::Value, Error> {
        let mut schema = Map::new();
        if !kind.is_empty() {
            schema.insert("type".into(), json!([kind, "null"]));
        }
        let words = (visitor as &dyn Expected).to_string();
        if words.contains(' ') && !["a string", "a boolean"].contains(&&*words) {
            schema.insert("description".into(), words.into());
        }
        self.end(schema.into(), Vec::new())
    }
}

impl<'de> IntoDeserializer<'de, Error> for Probe<'_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

/// The methods that ask for a single value of a type.
macro_rules! singles {
    ($($method:ident: $kind:literal,)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            self.single(&visitor, $kind)
        })*
    };
}

impl<'de> Deserializer<'de> for Probe<'_> {
    type Error = Error;

    singles! {
        deserialize_any: "",
        deserialize_bool: "boolean",
        deserialize_i64: "integer",
        deserialize_u64: "integer",
        deserialize_f64: "number",
        deserialize_str: "string",
        deserialize_string: "string",
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &str, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.has_arrived() {
            return self.end(json!({"type": ["array", "null"]}), vec![vec!["items".into()]]);
        }
        visitor.visit_seq(SeqDeserializer::new(once(self.after(1))))
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.has_arrived() {
            return self.end(json!({"type": ["object", "null"]}), vec![vec!["additionalProperties".into()]]);
        }
        visitor.visit_map(MapDeserializer::new(once(("any", self.after(1)))))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &str,
        variants: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Error> {
        self.end(json!({"enum": variants}), Vec::new())
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        if let [_, field, ..] = self.path {
            return visitor.visit_map(MapDeserializer::new(once((field.as_str(), self.after(2)))));
        }
        let below = fields.iter().map(|field| vec!["properties".into(), (*field).to_owned()]).collect();
        let is_open = !name.starts_with(char::is_lowercase);
        self.end(json!({"type": ["object", "null"], "additionalProperties": is_open}), below)
    }

    forward_to_deserialize_any! {
        i8 i16 i32 u8 u16 u32 f32 char bytes byte_buf unit unit_struct tuple tuple_struct identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Serialize};

    use super::*;
    use crate::clock::Span;

    #[derive(Default, Deserialize, Serialize)]
    #[serde(rename = "setting", rename_all = "kebab-case", default)]
    #[allow(dead_code, reason = "only their types count")]
    struct Inner {
        is_on: bool,
        time: Option<Span>,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Word {
        One,
        Two,
    }

    #[derive(Deserialize)]
    #[allow(dead_code, reason = "only their types count")]
    struct Outer {
        list: Vec<Inner>,
        map: BTreeMap<String, f64>,
        inner: Inner,
        word: Word,
        count: Option<u64>,
    }

    #[test]
    fn schema_follows_the_type_with_defaults() {
        let _ = [Word::One, Word::Two];
        let duration = "a duration in quotes, as in \"5m\"";
        let inner = json!({
            "type": ["object", "null"], "additionalProperties": false,
            "properties": {"is-on": {"type": ["boolean", "null"]}, "time": {"type": ["string", "null"], "description": duration}},
        });
        let mut schema = of::<Outer>();
        let expected = json!({
            "type": ["object", "null"], "additionalProperties": true,
            "properties": {
                "list": {"type": ["array", "null"], "items": inner},
                "map": {"type": ["object", "null"], "additionalProperties": {"type": ["number", "null"]}},
                "inner": inner,
                "word": {"enum": ["one", "two"]},
                "count": {"type": ["integer", "null"]},
            },
        });
        assert_eq!(schema, expected);
        with_defaults(&mut schema, &json!({"inner": {"is-on": true, "time": null}, "list": []}));
        assert_eq!(schema["properties"]["inner"]["properties"]["is-on"]["default"], true);
        assert_eq!(schema["properties"]["list"]["default"], json!([]));
        assert_eq!(schema["properties"]["inner"]["properties"]["time"]["default"], Value::Null);
    }
}
