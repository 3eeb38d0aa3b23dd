//! JSON as a tree of named parts: how objects of snapshots and facts of nodes are compared.

use std::collections::BTreeMap;

use serde_json::Value;

use base::json::json;

/// Fields that name the element of a list.
const NAMES: [&str; 4] = ["mount", "name", "server", "device"];

/// The parts of an object or a list by their step in a path: `.field`, `[name]` if all elements have names, else `[0]`;
/// `None` for a value without parts.
pub(super) fn parts(value: &Value) -> Option<BTreeMap<String, &Value>> {
    let is_simple = |key: &str| key.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c));
    let field = |key: &String| if is_simple(key) { format!(".{key}") } else { format!("[{}]", json!(key)) };
    let named =
        |element: &Value| NAMES.iter().find_map(|name| Some(format!("[{}]", element.get(name)?.as_str()?)));
    match value {
        Value::Object(map) => Some(map.iter().map(|(key, value)| (field(key), value)).collect()),
        Value::Array(list) => {
            let by_name: Option<BTreeMap<_, _>> =
                list.iter().map(|element| Some((named(element)?, element))).collect();
            let by_index = || (0..).map(|at| format!("[{at}]")).zip(list).collect();
            Some(by_name.filter(|named| named.len() == list.len()).unwrap_or_else(by_index))
        }
        _ => None,
    }
}
