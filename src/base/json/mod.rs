//! JSON literals in little machine code; untrusted JSON read into bounded memory.
//!
//! Owns the macro [`json`](macro@json), which replaces `serde_json`'s: this program has hundreds of keys, and theirs
//! expands each into a conversion that may fail, an allocation and a drop.

mod bounded;
mod page;

pub use bounded::{Bounded, MAX_TREE_BYTES, from_reader, from_slice, weight};
pub use page::Page;

use serde::Serialize;
use serde_json::{Map, Value};

/// A [`Value`]: `json!({"key": expression, "list": [1, 2], "nothing": null})`.
#[doc(hidden)]
#[macro_export]
macro_rules! __json {
    (@members $map:ident $(,)?) => {};
    (@members $map:ident $key:tt: $value:tt $(, $($rest:tt)*)?) => {
        $crate::json::put(&mut $map, $key, $crate::json::json!($value));
        $crate::json::json!(@members $map $($($rest)*)?);
    };
    (@members $map:ident $key:tt: $value:expr $(, $($rest:tt)*)?) => {
        $crate::json::put(&mut $map, $key, $crate::json::value(&$value));
        $crate::json::json!(@members $map $($($rest)*)?);
    };
    (@elements $list:ident $(,)?) => {};
    (@elements $list:ident $value:tt $(, $($rest:tt)*)?) => {
        $crate::json::add(&mut $list, $crate::json::json!($value));
        $crate::json::json!(@elements $list $($($rest)*)?);
    };
    (@elements $list:ident $value:expr $(, $($rest:tt)*)?) => {
        $crate::json::add(&mut $list, $crate::json::value(&$value));
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
pub fn put(map: &mut Map<String, Value>, key: &str, value: Value) {
    map.insert(key.to_owned(), value);
}

/// A function, so that all elements share one copy.
#[inline(never)]
pub fn add(list: &mut Vec<Value>, value: Value) {
    list.push(value);
}

/// A function, so that there is one copy per type. Maps with non-text keys, which JSON cannot express, become null.
#[inline(never)]
pub fn value<T: Serialize + ?Sized>(from: &T) -> Value {
    serde_json::to_value(from).unwrap_or_default()
}

/// On one line, escaping the characters that Go escapes: some programs compare the text.
pub fn line<T: Serialize + ?Sized>(from: &T) -> String {
    // This cannot fail: all keys are text.
    let mut text = serde_json::to_string(from).unwrap_or_default();
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

#[cfg(test)]
mod tests {
    use serde_json::json as theirs;

    #[test]
    fn it_is_what_serde_json_makes() {
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
            [super::json!(null), super::json!([]), super::json!({}), super::json!(text)],
            [theirs!(null), theirs!([]), theirs!({}), theirs!(text)]
        );
    }
}
