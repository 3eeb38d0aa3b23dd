//! Typed values from a tree, through serde: a value of the wrong type is an error with its
//! position, its path, and the expected type.
//!
//! Values override existing ones, the way Go reads JSON into a struct: null clears lists, maps and
//! optional values and leaves everything else alone; lists and maps are replaced. A struct whose
//! name for serde begins with a small letter rejects unknown keys.
//!
//! JSON Schemas of types are found by asking serde: a probe in place of a value records what a type
//! asks for. One question per place: no probe is a valid value, so that reading stops at the first
//! answer. They follow the same rules: null is accepted everywhere, and a struct whose name begins
//! with a small letter has no other keys.

use std::cell::RefCell;

use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{
    DeserializeOwned, Deserializer, Error as _, Expected, IntoDeserializer, Unexpected, Visitor,
};
use serde::forward_to_deserialize_any;
use serde_json::{Map, Value, json};

use super::{Content, Error, Key, Node, Position};
use base::near;

/// How the keys of structs are read.
#[derive(Default)]
pub struct Rules {
    /// Whether case does not matter in keys.
    pub any_case: bool,
    /// Paths of keys that are accepted without effect, in lower case.
    pub former: &'static [&'static str],
    /// Keys without effect, with the reason.
    pub ignored: RefCell<Vec<(Error, Ignored)>>,
    /// Path and position of the value that is being read.
    pub current: RefCell<(String, Position)>,
}

/// Why a key has no effect.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ignored {
    /// It resembles no known key.
    Unknown,
    /// It resembles a known key.
    Misspelt,
    /// It is one of [`Rules::former`].
    Former,
}

/// Reads a value on its own.
pub fn read<T: DeserializeOwned>(path: &str, node: &Node) -> Result<T, Error> {
    read_over(path, node, &Value::Null, &Rules::default())
}

/// Reads a value over an existing one.
pub fn read_over<T: DeserializeOwned>(
    path: &str,
    node: &Node,
    under: &Value,
    rules: &Rules,
) -> Result<T, Error> {
    let value = TypedReader {
        path: path.to_owned(),
        node: Some(node),
        under,
        rules,
    };
    T::deserialize(Reader::Value(value).into_deserializer()).map_err(|error| {
        let (path, position) = rules.current.take();
        match error.message.strip_prefix(':') {
            _ if error.line > 0 => error,
            Some(reason) => position.error(format!("`{path}`:{reason}")),
            None => position.error(format!("`{path}` {}", error.message)),
        }
    })
}

/// The JSON Schema of what a type reads.
pub fn schema_of<T: DeserializeOwned>() -> Value {
    let mut root = Value::Null;
    let mut open = vec![Vec::new()];
    while let Some(path) = open.pop() {
        let findings = RefCell::<Found>::default();
        let _ = T::deserialize(Reader::Probe(Probe {
            path: &path,
            found: &findings,
        }));
        let (schema, below) = findings.into_inner();
        let place = path
            .iter()
            .fold(&mut root, |value, key: &String| &mut value[key]);
        *place = schema;
        open.extend(below.into_iter().map(|steps| [&path[..], &steps].concat()));
    }
    root
}

/// The error for a value of the wrong kind.
pub fn wrong(path: &str, node: &Node, needed: &str) -> Error {
    node.position
        .error(format!("`{path}` must be {needed}, not {}", node.kind()))
}

/// The entries of a map.
pub fn entries<'n>(path: &str, node: &'n Node) -> Result<&'n [(Key, Node)], Error> {
    match &node.content {
        Content::Map(entries) => Ok(entries),
        _ => Err(wrong(path, node, "a map")),
    }
}

/// Applies `item` to each item of a list.
pub fn list<'n, T>(
    path: &str,
    node: &'n Node,
    mut item: impl FnMut(&str, &'n Node) -> Result<T, Error>,
) -> Result<Vec<T>, Error> {
    let Content::List(items) = &node.content else {
        return Err(wrong(path, node, "a list"));
    };
    items
        .iter()
        .enumerate()
        .map(|(at, node)| item(&format!("{path}[{at}]"), node))
        .collect()
}

/// Text; values that look like another type must be quoted.
pub fn text<'n>(path: &str, node: &'n Node) -> Result<&'n str, Error> {
    let plain = match &node.content {
        Content::Text(text) => return Ok(text),
        Content::Number(number) => number.to_string(),
        Content::Bool(flag) => flag.to_string(),
        _ => return Err(wrong(path, node, "text")),
    };
    let words = format!(
        "`{path}` must be text, not {}: quote it, as in \"{plain}\"",
        node.kind()
    );
    Err(node.position.error(words))
}

/// Errors of types continue the sentence that begins with the path of the value.
impl serde::de::Error for Error {
    fn custom<T: std::fmt::Display>(message: T) -> Self {
        Position::default().error(message.to_string())
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let expected = expected.to_string();
        let needed = match expected.as_str() {
            "a boolean" => "true or false without quotes",
            "i64" | "u64" => "a whole number without quotes",
            "f64" => "a number without quotes",
            "a sequence" => "a list",
            other => other,
        };
        let kind = if let Unexpected::Str(_) = found {
            "text".into()
        } else {
            found.to_string()
        };
        Self::custom(format_args!("must be {needed}, not {kind}"))
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::custom(match found {
            Unexpected::Signed(count) => format!("is {count}, but cannot be negative"),
            _ => format!("must be {expected}, not {found}"),
        })
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        Self::custom(format_args!(
            "is `{variant}`; write {}",
            either(expected, "or")
        ))
    }

    fn missing_field(field: &'static str) -> Self {
        Self::custom(format_args!("has no `{field}`"))
    }
}

/// `a, b or c`.
fn either(words: &[&str], last: &str) -> String {
    match words.split_last() {
        Some((end, rest)) if !rest.is_empty() => format!("{} {last} {end}", rest.join(", ")),
        _ => words.concat(),
    }
}

/// One value of a tree, and the one that it overrides.
struct TypedReader<'de> {
    path: String,
    /// `None` if the tree lacks it.
    node: Option<&'de Node>,
    under: &'de Value,
    rules: &'de Rules,
}

impl<'de> TypedReader<'de> {
    /// The node, unless it is missing or null.
    fn present_node(&self) -> Option<&'de Node> {
        self.node.filter(|node| !node.is_null())
    }

    fn is_null(&self) -> bool {
        self.node.is_some_and(Node::is_null)
    }

    fn child(&self, path: String, node: Option<&'de Node>, under: &'de Value) -> Reader<'de> {
        Reader::Value(Self {
            path,
            node,
            under,
            rules: self.rules,
        })
    }

    fn below(&self, key: &str) -> String {
        if self.path.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.path)
        }
    }

    fn start(&self) {
        if let Some(node) = self.node {
            self.rules
                .current
                .replace((self.path.clone(), node.position));
        }
    }

    fn any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.present_node().map(|node| &node.content) {
            None | Some(Content::Null) => {
                self.under.deserialize_any(visitor).map_err(Error::custom)
            }
            Some(Content::Bool(flag)) => visitor.visit_bool(*flag),
            Some(Content::Number(number)) => match number.as_i64() {
                Some(whole) => visitor.visit_i64(whole),
                None => visitor.visit_f64(number.as_f64().unwrap_or_default()),
            },
            Some(Content::Text(text)) => visitor.visit_str(text),
            Some(Content::List(items)) => {
                let item = |(at, node)| {
                    self.child(format!("{}[{at}]", self.path), Some(node), &Value::Null)
                };
                visit_list(visitor, items.iter().enumerate().map(item).collect())
            }
            Some(Content::Map(entries)) => {
                let entry = |(key, node): &'de (Key, Node)| {
                    (
                        key.text.as_str(),
                        self.child(self.below(&key.text), Some(node), &Value::Null),
                    )
                };
                let all = entries.iter().map(entry).collect();
                visit_map(visitor, all, Some(self))
            }
        }
    }

    /// The fields of a struct that are given here or overridden.
    fn fields(
        &self,
        name: &'static str,
        fields: &'static [&'static str],
    ) -> Result<Vec<(&'de str, Reader<'de>)>, Error> {
        let place = if self.path.is_empty() {
            "the configuration"
        } else {
            &self.path
        };
        let node_entries = self
            .present_node()
            .map_or(Ok(&[][..]), |node| entries(place, node))?;
        let is = |field: &str, key: &Key| match self.rules.any_case {
            true => field.eq_ignore_ascii_case(&key.text),
            false => field == key.text,
        };
        let mut all = Vec::new();
        for &field in fields {
            let under = self.under.get(field).unwrap_or(&Value::Null);
            let entry = node_entries.iter().rfind(|(key, _)| is(field, key));
            let node = entry.map(|(_, node)| node);
            // Without a value in either, the type has a default.
            if !under.is_null() || node.is_some_and(|node| !node.is_null()) {
                let path = self.below(entry.map_or(field, |(key, _)| &key.text));
                all.push((field, self.child(path, node, under)));
            }
        }
        for (key, node) in node_entries
            .iter()
            .filter(|(key, _)| !fields.iter().any(|field| is(field, key)))
        {
            let path = self.below(&key.text);
            let hint = near::hint(&key.text, fields.iter().copied());
            if self.rules.former.contains(&&*path.to_lowercase()) {
                let unused = key
                    .position
                    .error(format!("`{path}` no longer has an effect"));
                self.rules
                    .ignored
                    .borrow_mut()
                    .push((unused, Ignored::Former));
                continue;
            } else if name.starts_with(char::is_lowercase) {
                let keys = either(fields, "and");
                return Err(node.position.error(format!(
                    "`{path}` is not a {name}{hint}; valid keys are {keys}"
                )));
            }
            let of = if self.path.is_empty() {
                String::new()
            } else {
                format!(" in `{place}`")
            };
            let unknown = key
                .position
                .error(format!("unknown key `{}`{of}{hint}", key.text));
            let why = if hint.is_empty() {
                Ignored::Unknown
            } else {
                Ignored::Misspelt
            };
            self.rules.ignored.borrow_mut().push((unknown, why));
        }
        Ok(all)
    }
}

/// A schema, and where others belong in it.
type Found = (Value, Vec<Vec<String>>);

/// Stands in for a value on the way to a place in the schema.
struct Probe<'p> {
    path: &'p [String],
    found: &'p RefCell<Found>,
}

impl<'p> Probe<'p> {
    fn after(&self, steps: usize) -> Self {
        Self {
            path: &self.path[steps..],
            ..*self
        }
    }

    /// Records the answer.
    fn end<T>(self, schema: Value, below: Vec<Vec<String>>) -> Result<T, Error> {
        self.found.replace((schema, below));
        Err(Error::custom("recorded"))
    }

    /// Records a single value; what a visitor expects beyond its type becomes the description.
    fn single<T>(self, expected: &dyn Expected, kind: &str) -> Result<T, Error> {
        let mut schema = Map::new();
        if !kind.is_empty() {
            schema.insert("type".into(), json!([kind, "null"]));
        }
        let words = expected.to_string();
        if words.contains(' ') && !["a string", "a boolean"].contains(&&*words) {
            schema.insert("description".into(), words.into());
        }
        self.end(schema.into(), Vec::new())
    }

    /// The probe inside a list or map, whose schema has its items under `key`.
    fn inside(self, kind: &str, key: &str) -> Result<Self, Error> {
        match self.path {
            [] => self.end(json!({"type": [kind, "null"]}), vec![vec![key.into()]]),
            _ => Ok(self.after(1)),
        }
    }

    /// The probe inside a struct, and the field that it is for.
    fn field(self, name: &str, fields: &[&str]) -> Result<(&'p str, Self), Error> {
        if let [_, field, ..] = self.path {
            return Ok((field, self.after(2)));
        }
        let below = fields
            .iter()
            .map(|field| vec!["properties".into(), (*field).to_owned()])
            .collect();
        let is_open = !name.starts_with(char::is_lowercase);
        self.end(
            json!({"type": ["object", "null"], "additionalProperties": is_open}),
            below,
        )
    }
}

/// A value, or a probe for a schema. A single type, so that there is only one copy of each type's
/// machine code.
enum Reader<'de> {
    Value(TypedReader<'de>),
    Probe(Probe<'de>),
}

impl<'de> IntoDeserializer<'de, Error> for Reader<'de> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        if let Self::Value(value) = &self {
            value.start();
        }
        self
    }
}

/// Entries of a map; errors after the last one concern the map as a whole. Not generic over the
/// visitor, so that its machine code exists once.
fn then_whole<'de>(
    entries: Vec<(&'de str, Reader<'de>)>,
    whole: Option<TypedReader<'de>>,
) -> impl Iterator<Item = (&'de str, Reader<'de>)> {
    let end = move || {
        whole.iter().for_each(TypedReader::start);
        None
    };
    entries.into_iter().chain(std::iter::from_fn(end))
}

fn visit_map<'de, V: Visitor<'de>>(
    visitor: V,
    entries: Vec<(&'de str, Reader<'de>)>,
    whole: Option<TypedReader<'de>>,
) -> Result<V::Value, Error> {
    visitor.visit_map(MapDeserializer::new(then_whole(entries, whole)))
}

fn visit_list<'de, V: Visitor<'de>>(
    visitor: V,
    items: Vec<Reader<'de>>,
) -> Result<V::Value, Error> {
    visitor.visit_seq(SeqDeserializer::new(items.into_iter()))
}

/// The methods that ask for a single value of a type.
macro_rules! singles {
    ($($method:ident: $kind:literal,)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            match self {
                Self::Value(value) => value.any(visitor),
                Self::Probe(probe) => probe.single(&visitor, $kind),
            }
        })*
    };
}

impl<'de> Deserializer<'de> for Reader<'de> {
    type Error = Error;

    singles! {
        deserialize_any: "",
        deserialize_bool: "boolean",
        deserialize_i64: "integer",
        deserialize_u16: "integer",
        deserialize_u64: "integer",
        deserialize_f64: "number",
        deserialize_str: "string",
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self {
            Self::Probe(probe) => probe.single(&visitor, "string"),
            Self::Value(value) => match value.present_node() {
                Some(node) => visitor.visit_str(text(&value.path, node)?),
                None => visitor.visit_str(value.under.as_str().unwrap_or_default()),
            },
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match &self {
            Self::Value(value) if value.is_null() => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self {
            Self::Value(value) if value.is_null() => visit_list(visitor, Vec::new()),
            Self::Value(value) => value.any(visitor),
            Self::Probe(probe) => {
                visit_list(visitor, vec![Self::Probe(probe.inside("array", "items")?)])
            }
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self {
            Self::Value(value) if value.is_null() => visit_map(visitor, Vec::new(), Some(value)),
            Self::Value(value) => value.any(visitor),
            Self::Probe(probe) => {
                let item = Self::Probe(probe.inside("object", "additionalProperties")?);
                visit_map(visitor, vec![("any", item)], None)
            }
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let value = match self {
            Self::Value(value) => value,
            Self::Probe(probe) => return probe.end(json!({"enum": variants}), Vec::new()),
        };
        match value
            .present_node()
            .map(|node| text(&value.path, node))
            .transpose()?
        {
            None | Some("") => value
                .under
                .deserialize_enum(name, variants, visitor)
                .map_err(Error::custom),
            Some(word) => visitor.visit_enum(word.into_deserializer()),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self {
            Self::Value(value) => {
                let fields = value.fields(name, fields)?;
                visit_map(visitor, fields, Some(value))
            }
            Self::Probe(probe) => {
                let (field, probe) = probe.field(name, fields)?;
                visit_map(visitor, vec![(field, Self::Probe(probe))], None)
            }
        }
    }

    forward_to_deserialize_any! {
        i8 i16 i32 u8 u32 f32 char bytes byte_buf unit unit_struct tuple tuple_struct identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use serde::Deserialize;
    use serde_json::json;

    use super::*;
    use crate::document;
    use base::clock::Span;

    fn over<T: DeserializeOwned>(text: &str, under: &Value) -> T {
        read_over("x", &document(text).unwrap(), under, &Rules::default()).unwrap()
    }

    #[test]
    fn null_clears_collections_and_leaves_single_values() {
        assert_eq!(over::<String>("~", &json!("a")), "a");
        assert_eq!(over::<u64>("~", &json!(3)), 3);
        assert!(over::<Vec<i64>>("~", &json!([1])).is_empty());
        assert_eq!(over::<Option<Vec<String>>>("~", &json!(["b"])), None);
        assert_eq!(
            over::<BTreeMap<String, f64>>("~", &json!({"c": 1.5})),
            BTreeMap::new()
        );
    }

    #[test]
    fn lists_and_maps_are_replaced() {
        assert_eq!(over::<Vec<String>>("[b, ~]", &json!(["a"])), ["b", ""]);
        let map = over::<BTreeMap<String, i64>>("{b: 3, c: 4}", &json!({"a": 1, "b": 2}));
        assert_eq!(map.into_values().collect::<Vec<_>>(), [3, 4]);
    }

    #[derive(Debug, Default, Deserialize, PartialEq)]
    #[serde(default, rename = "setting")]
    struct Strict {
        limit: u64,
        time: Option<Span>,
    }

    #[test]
    fn structs_deny_or_list_unknown_keys_with_the_nearest_known_one() {
        let under = json!({"limit": 3});
        assert_eq!(
            over::<Strict>("time: 5s", &under),
            Strict {
                limit: 3,
                time: Some(Span(Duration::from_secs(5)))
            }
        );
        assert_eq!(over::<Strict>("limit: ~", &under).limit, 3);
        let error = read::<Strict>("x", &document("\nlimti: 1").unwrap()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "line 2, column 8: `x.limti` is not a setting; did you mean `limit`?; valid keys are \
             limit and time"
        );

        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Lax {
            limit: u64,
        }
        let rules = Rules {
            any_case: true,
            former: &["x.old"],
            ..Rules::default()
        };
        let text = document("{LIMIT: 2, old: 1, limti: 1, other: 1}").unwrap();
        assert_eq!(
            read_over::<Lax>("x", &text, &Value::Null, &rules)
                .unwrap()
                .limit,
            2
        );
        let ignored: Vec<_> = rules
            .ignored
            .take()
            .into_iter()
            .map(|(error, why)| (error.message, why))
            .collect();
        let words = [
            ("`x.old` no longer has an effect", Ignored::Former),
            (
                "unknown key `limti` in `x`; did you mean `limit`?",
                Ignored::Misspelt,
            ),
            ("unknown key `other` in `x`", Ignored::Unknown),
        ];
        assert_eq!(ignored, words.map(|(word, why)| (word.to_owned(), why)));
    }

    #[test]
    fn wrong_type_is_reported_with_its_path() {
        fn refuse<T: DeserializeOwned>(content: &str, words: &str) {
            let error = read::<T>("x", &document(content).unwrap())
                .map(drop)
                .unwrap_err();
            assert!(error.message.contains(words), "{content}: {error}");
        }
        refuse::<String>("3", "`x` must be text, not a number: quote it, as in \"3\"");
        refuse::<String>("[a]", "`x` must be text, not a list");
        refuse::<bool>("'true'", "without quotes");
        refuse::<i64>("1.5", "a whole number");
        refuse::<u64>("-1", "`x` is -1, but cannot be negative");
        refuse::<f64>("a", "a number without quotes");
        refuse::<Span>("5", "`x` must be a duration in quotes");
        refuse::<Span>("soon", "`x` is not a duration; write it as 90s");
        refuse::<Vec<String>>("[a, {b: c}]", "`x[1]` must be text, not a map");
        refuse::<BTreeMap<String, bool>>("{a: {}}", "`x.a` must be true or false");
    }
}
