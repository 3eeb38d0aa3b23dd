//! JSON written as it looks, in little machine code; JSON of strangers read into as much memory as it may take.
//!
//! Owns the macro [`json`](macro@json), which takes the place of `serde_json`'s: hundreds of keys stand in this program,
//! and theirs unfolds each of them into a conversion that may fail, an allocation and a drop.

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
    (@members $map:ident $key:tt: null $(, $($rest:tt)*)?) => {
        $crate::json::put(&mut $map, $key, serde_json::Value::Null);
        $crate::json::json!(@members $map $($($rest)*)?);
    };
    (@members $map:ident $key:tt: {$($inner:tt)*} $(, $($rest:tt)*)?) => {
        $crate::json::put(&mut $map, $key, $crate::json::json!({$($inner)*}));
        $crate::json::json!(@members $map $($($rest)*)?);
    };
    (@members $map:ident $key:tt: [$($inner:tt)*] $(, $($rest:tt)*)?) => {
        $crate::json::put(&mut $map, $key, $crate::json::json!([$($inner)*]));
        $crate::json::json!(@members $map $($($rest)*)?);
    };
    (@members $map:ident $key:tt: $value:expr $(, $($rest:tt)*)?) => {
        $crate::json::put(&mut $map, $key, $crate::json::value(&$value));
        $crate::json::json!(@members $map $($($rest)*)?);
    };
    (@elements $list:ident $(,)?) => {};
    (@elements $list:ident null $(, $($rest:tt)*)?) => {
        $crate::json::add(&mut $list, serde_json::Value::Null);
        $crate::json::json!(@elements $list $($($rest)*)?);
    };
    (@elements $list:ident {$($inner:tt)*} $(, $($rest:tt)*)?) => {
        $crate::json::add(&mut $list, $crate::json::json!({$($inner)*}));
        $crate::json::json!(@elements $list $($($rest)*)?);
    };
    (@elements $list:ident [$($inner:tt)*] $(, $($rest:tt)*)?) => {
        $crate::json::add(&mut $list, $crate::json::json!([$($inner)*]));
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

/// One copy of this for all keys.
#[inline(never)]
pub fn put(map: &mut Map<String, Value>, key: &str, value: Value) {
    map.insert(key.to_owned(), value);
}

/// One copy of this for all elements.
#[inline(never)]
pub fn add(list: &mut Vec<Value>, value: Value) {
    list.push(value);
}

/// One copy of this for each type. What JSON has no word for, a map with keys that are not text, becomes null.
#[inline(never)]
pub fn value<T: Serialize + ?Sized>(from: &T) -> Value {
    serde_json::to_value(from).unwrap_or_default()
}

/// On one line, with the signs that Go escapes escaped: some compare the text.
pub fn line<T: Serialize + ?Sized>(from: &T) -> String {
    // Nothing that is written so can fail to be: all keys are text.
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
