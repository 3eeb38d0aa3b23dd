//! Defaults and descriptions of JSON Schemas, which [`super::typed::schema_of`] makes.

use serde_json::Value;

/// Adds the values of `value` to a schema as defaults.
pub fn with_defaults(schema: &mut Value, value: &Value) {
    match (
        schema.get_mut("properties").and_then(Value::as_object_mut),
        value,
    ) {
        (_, Value::Null) => {}
        (Some(properties), Value::Object(values)) => {
            properties.iter_mut().for_each(|(key, schema)| {
                with_defaults(schema, values.get(key).unwrap_or(&Value::Null));
            });
        }
        _ => schema["default"] = value.clone(),
    }
}

/// Adds the descriptions in the tables of a Markdown page. The first section describes the keys of
/// the schema itself, each other one those below the key that is its title. A row names one or more
/// keys; the last column describes keys of the schema itself, all columns together the keys below.
pub fn describe(schema: &mut Value, sections: &[&str], page: &str) {
    let mut section = None;
    for line in page.lines() {
        if let Some(title) = line.strip_prefix('#') {
            section = sections
                .iter()
                .position(|section| *section == title.trim_start_matches(['#', ' ']));
        }
        let (Some(section), Some(row)) = (section, line.strip_prefix("| `")) else {
            continue;
        };
        let Some((keys, about)) = row.trim_end_matches([' ', '|']).split_once(" | ") else {
            continue;
        };
        let about = match section {
            0 => about.rsplit(" | ").next().unwrap_or(about).to_owned(),
            _ => about.replace(" | ", "; "),
        };
        // `A.b`, `c` means `A.b` and `A.c`.
        let group = keys
            .split('`')
            .next()
            .and_then(|first| first.rsplit_once('.'))
            .map(|(group, _)| group);
        for key in keys.split('`').step_by(2) {
            let group = group.filter(|_| !key.contains('.'));
            let above = Some(sections[section]).filter(|_| section > 0);
            let path = above
                .into_iter()
                .chain(group)
                .chain([key])
                .flat_map(|names| names.split('.'));
            let mut place = Some(&mut *schema);
            for name in path {
                place = place.and_then(|place| place.get_mut("properties")?.get_mut(name));
            }
            if let Some(place) = place {
                place["description"] = plain(&about).into();
            }
        }
    }
}

/// Markdown as plain text, which is what editors show: without the targets of links and the marks
/// of code.
fn plain(markdown: &str) -> String {
    let mut parts = markdown.split('[');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part
            .split_once("](")
            .and_then(|(words, rest)| Some((words, rest.split_once(')')?.1)))
        {
            Some((words, rest)) => text.extend([words, rest]),
            None => text.extend(["[", part]),
        }
    }
    text.replace('`', "")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Serialize};
    use serde_json::json;

    use super::*;
    use crate::typed::schema_of;
    use base::clock::Span;

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
    fn descriptions_are_plain_text() {
        let page =
            "# Keys\n| `a`, `b` | none | files: `[x.yaml]`, see [formats](#formats) and `c` |\n";
        let mut schema = json!({"properties": {"a": {}, "b": {}}});
        describe(&mut schema, &["Keys"], page);
        let about = json!({"description": "files: [x.yaml], see formats and c"});
        assert_eq!(schema, json!({"properties": {"a": about, "b": about}}));
    }

    #[test]
    fn schema_follows_the_type_with_defaults() {
        let _ = [Word::One, Word::Two];
        let duration = "a duration in quotes, as in \"5m\"";
        let inner = json!({
            "type": ["object", "null"], "additionalProperties": false,
            "properties": {"is-on": {"type": ["boolean", "null"]}, "time": {"type": ["string", "null"], "description": duration}},
        });
        let mut schema = schema_of::<Outer>();
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
        with_defaults(
            &mut schema,
            &json!({"inner": {"is-on": true, "time": null}, "list": []}),
        );
        assert_eq!(
            schema["properties"]["inner"]["properties"]["is-on"]["default"],
            true
        );
        assert_eq!(schema["properties"]["list"]["default"], json!([]));
        assert_eq!(
            schema["properties"]["inner"]["properties"]["time"]["default"],
            Value::Null
        );
    }
}
