//! The Kubernetes parts of definitions: their types, checked while line and column are known, so
//! that a number in place of text is reported before the run; and their canonical form, the same as
//! that of Kubernetes' own programs, in which quantities are `500m` or `1Gi`. `kubernetes.txt`
//! lists the fields.

use std::collections::HashMap;
use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::DriverKind;
use base::json::json;
use yaml::typed::{self, entries, text, wrong};
use yaml::{Content, Error, Node};

pub(super) const POD: &str = "PodSpec";
pub(super) const CONTAINER: &str = "Container";

/// A field of a Kubernetes type.
struct KubernetesField {
    name: &'static str,
    kind: &'static str,
    /// Whether it is written although it is not given.
    always: bool,
    /// Whether absent differs from empty: written if given, even if empty; null if `always` and
    /// not given.
    optional: bool,
}

static TYPES: LazyLock<HashMap<&str, Vec<KubernetesField>>> = LazyLock::new(|| {
    let mut types: HashMap<_, Vec<_>> = HashMap::new();
    let mut of = "";
    for line in include_str!("kubernetes.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
    {
        for word in line.split(' ').filter(|word| !word.is_empty()) {
            match word.split_once(':') {
                None => of = word,
                Some((name, mark)) => types.entry(of).or_default().push(field(name, mark)),
            }
        }
    }
    types
});

fn field(name: &'static str, mark: &'static str) -> KubernetesField {
    let kind = mark.trim_start_matches(['!', '*']);
    KubernetesField {
        name,
        kind,
        always: mark.starts_with('!'),
        optional: mark.contains('*'),
    }
}

/// The JSON Schemas of all types, by name.
pub(super) fn schemas() -> Map<String, Value> {
    let of = |fields: &[KubernetesField]| {
        let properties: Value = fields
            .iter()
            .map(|field| (field.name, schema(field.kind)))
            .collect();
        json!({"type": ["object", "null"], "additionalProperties": false, "properties": properties})
    };
    TYPES
        .iter()
        .map(|(name, fields)| ((*name).to_owned(), of(fields)))
        .collect()
}

/// The JSON Schema of a kind; those of types refer to [`schemas`].
pub(super) fn schema(kind: &str) -> Value {
    match kind {
        "any" => json!({}),
        "text" | "time" => json!({"type": ["string", "null"]}),
        "flag" => json!({"type": ["boolean", "null"]}),
        "int32" | "int64" => json!({"type": ["integer", "null"]}),
        "port" => json!({"type": ["integer", "string", "null"]}),
        "quantity" => json!({"type": ["number", "string", "null"]}),
        _ => match (kind.strip_prefix("[]"), kind.strip_prefix("{}")) {
            (Some(item), _) => json!({"type": ["array", "null"], "items": schema(item)}),
            (_, Some(value)) => {
                json!({"type": ["object", "null"], "additionalProperties": schema(value)})
            }
            _ => json!({"$ref": format!("#/definitions/{kind}")}),
        },
    }
}

/// Reads Kubernetes parts and collects notes for the user.
#[derive(Default)]
pub(super) struct Parts {
    /// Omitted fields, with reasons.
    pub notes: Vec<String>,
}

impl Parts {
    /// A value of a kind in the table.
    pub(super) fn value(
        &mut self,
        path: &str,
        node: &Node,
        kind: &'static str,
    ) -> Result<Value, Error> {
        if kind == "any" {
            return Ok(tree(node));
        }
        if node.is_null() {
            return Ok(empty(kind));
        }
        if let Some(kind) = kind.strip_prefix("[]") {
            return Ok(Value::Array(self.list(path, node, kind)?));
        }
        if let Some(kind) = kind.strip_prefix("{}") {
            let entries = entries(path, node)?.iter();
            let read = entries.map(|(key, node)| {
                Ok((
                    key.text.clone(),
                    self.value(&format!("{path}.{}", key.text), node, kind)?,
                ))
            });
            return read.collect();
        }
        match (kind, &node.content) {
            ("text" | "time", _) => text(path, node).map(Value::from),
            ("flag", _) => typed::read::<bool>(path, node).map(Value::from),
            ("int32" | "int64", Content::Number(number)) if !number.is_f64() => match number
                .as_i64()
            {
                Some(whole) if kind == "int64" || i32::try_from(whole).is_ok() => Ok(json!(whole)),
                _ => Err(node.position.error(format!("`{path}` is too large"))),
            },
            ("int32" | "int64", _) => Err(wrong(path, node, "a whole number without quotes")),
            ("port", Content::Number(number)) if number.is_i64() => Ok(json!(number)),
            ("port", Content::Text(text)) => Ok(json!(text)),
            ("port", _) => Err(wrong(path, node, "a whole number or a name")),
            ("quantity", Content::Number(number)) => size(path, node, &number.to_string()),
            ("quantity", Content::Text(text)) => size(path, node, text),
            ("quantity", _) => Err(wrong(path, node, "a quantity such as 500m or 1Gi")),
            _ => self.object(path, node, kind),
        }
    }

    fn object(&mut self, path: &str, node: &Node, kind: &str) -> Result<Value, Error> {
        let entries = entries(path, node)?;
        let fields = fields(kind);
        let mut object = empty(kind);
        for (key, node) in entries.iter().filter(|(_, node)| !node.is_null()) {
            let path = format!("{path}.{}", key.text);
            if let Some(field) = fields.iter().find(|field| field.name == key.text) {
                let value = self.value(&path, node, field.kind)?;
                if field.always || field.optional || !is_empty(&value) {
                    object[field.name] = value;
                }
            } else if let Some(why) = mistake(&key.text, fields) {
                self.notes.push(format!("`{path}` is left out: {why}"));
            } else {
                // Fields of later Kubernetes versions are passed on.
                object[&key.text] = tree(node);
                self.notes.push(format!(
                    "unknown field `{path}` is passed on; check its spelling"
                ));
            }
        }
        Ok(object)
    }

    /// A list of values of a kind.
    pub(super) fn list(
        &mut self,
        path: &str,
        node: &Node,
        kind: &'static str,
    ) -> Result<Vec<Value>, Error> {
        typed::list(path, node, |path, item| self.value(path, item, kind))
    }
}

fn fields(kind: &str) -> &'static [KubernetesField] {
    TYPES.get(kind).map(Vec::as_slice).unwrap_or_default()
}

fn is_field(kind: &str, name: &str) -> bool {
    fields(kind).iter().any(|field| field.name == name)
}

/// Why a key is not among these fields; `None` if it may be a field of a later Kubernetes:
/// well-formed, and not a known field in the wrong place or case.
fn mistake(key: &str, fields: &[KubernetesField]) -> Option<String> {
    let is_well_formed = key.starts_with(|c: char| c.is_ascii_lowercase())
        && key.bytes().all(|b| b.is_ascii_alphanumeric());
    let spelled = fields
        .iter()
        .find(|field| field.name.eq_ignore_ascii_case(key));
    match (spelled, is_field(POD, key), is_field(CONTAINER, key)) {
        (Some(field), ..) => Some(format!("it is spelled `{}`", field.name)),
        (_, true, false) => Some("it is a field of the pod, in `podSpec`".into()),
        (_, false, true) => Some("it is a field of a container".into()),
        (_, false, false) if is_well_formed => None,
        _ => Some("there is no such field".into()),
    }
}

/// Default value of a missing field or part.
pub(super) fn empty(kind: &str) -> Value {
    match kind {
        "text" => json!(""),
        "flag" => json!(false),
        "int32" | "int64" | "port" => json!(0),
        "quantity" => json!("0"),
        _ => TYPES.get(kind).map_or(Value::Null, |fields| {
            fields
                .iter()
                .filter(|field| field.always)
                .map(|field| {
                    (
                        field.name,
                        if field.optional {
                            Value::Null
                        } else {
                            empty(field.kind)
                        },
                    )
                })
                .collect()
        }),
    }
}

fn is_empty(value: &Value) -> bool {
    [
        json!(null),
        json!(false),
        json!(0),
        json!(""),
        json!([]),
        json!({}),
    ]
    .contains(value)
}

fn size(path: &str, node: &Node, text: &str) -> Result<Value, Error> {
    canonical(text).map(Value::from).ok_or_else(|| {
        let message =
            format!("`{path}` is `{text}`, which is not a quantity; write it as 2, 500m or 1Gi");
        node.position.error(message)
    })
}

/// The driver named in a map.
pub(super) fn driver(node: &Node, path: &str) -> Result<DriverKind, Error> {
    let Some(value) = node.get("driver") else {
        return Err(node.position.error(format!(
            "`{path}` is missing; write Job, DaemonSet or Nodes"
        )));
    };
    let text = text(path, value)?;
    DriverKind::parse(text).ok_or_else(|| {
        value.position.error(format!(
            "`{path}` is `{text}`; write Job, DaemonSet or Nodes"
        ))
    })
}

/// A node as JSON, without null values, as in Go.
pub(super) fn tree(node: &Node) -> Value {
    match &node.content {
        Content::Map(entries) => entries
            .iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(key, value)| (key.text.as_str(), tree(value)))
            .collect(),
        Content::List(items) => items.iter().map(tree).collect(),
        _ => node.clone().into_value(),
    }
}

/// Base of a suffix.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    /// `k`, `M`, ... and no suffix.
    Thousands,
    /// `Ki`, `Mi`, ...
    Binary,
    /// `e3`, `E6`, ...
    Exponent,
}

const THOUSANDS: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
/// Precision; finer values are rounded.
const NANO: i128 = 1_000_000_000;
/// The maximum of quantities with a binary suffix.
const MAX_BINARY: i128 = i64::MAX as i128 * NANO;

/// Canonical form of a quantity, `0.5` as `500m`; `None` for other text.
fn canonical(text: &str) -> Option<String> {
    let text = text.trim();
    let negative = text.starts_with('-');
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let end = unsigned
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let (form, base, power) = meaning(suffix)?;
    if is_final(whole.trim_start_matches('0'), fraction, form, power) {
        return Some(text.to_owned());
    }
    // Numbers too large for any machine are kept unchanged, too.
    let Some(nanos) = nanos(whole, fraction, base, power) else {
        return Some(text.to_owned());
    };
    let sign = if negative && nanos != 0 { "-" } else { "" };
    let nanos = if form == Form::Binary {
        nanos.min(MAX_BINARY)
    } else {
        nanos
    };
    Some(format!("{sign}{}", format_quantity(nanos, form)))
}

/// Whether Kubernetes keeps the text unchanged as canonical: a decimal form with a power of 1000
/// whose digits do not end in a thousand, or a binary form that is not a multiple of 8 times a
/// power of 1024.
fn is_final(whole: &str, fraction: &str, form: Form, power: i32) -> bool {
    let count = |text: &str| i32::try_from(text.len()).unwrap_or(i32::MAX);
    if form == Form::Binary {
        return fraction.is_empty()
            && count(whole) + 3 * power < 15
            && whole.parse::<u64>().is_ok_and(|value| value % 8 != 0);
    }
    let digits = [whole, fraction].concat();
    let scale = power.saturating_sub(count(fraction));
    !whole.is_empty()
        && digits.len() <= 18
        && scale % 3 == 0
        && scale >= -9
        && !digits.ends_with("000")
}

fn meaning(suffix: &str) -> Option<(Form, i128, i32)> {
    let place =
        |known: &[&str]| i32::try_from(known.iter().position(|known| *known == suffix)?).ok();
    if let Some(at) = place(&THOUSANDS) {
        return Some((Form::Thousands, 10, at * 3 - 9));
    }
    if let Some(at) = place(&BINARY) {
        return Some((Form::Binary, 1024, at));
    }
    let exponent = suffix.strip_prefix(['e', 'E'])?;
    Some((Form::Exponent, 10, exponent.parse().ok()?))
}

/// The number in billionths, rounded up; `None` on overflow.
fn nanos(whole: &str, fraction: &str, base: i128, power: i32) -> Option<i128> {
    let fraction = fraction.trim_end_matches('0');
    let shift = i32::try_from(fraction.len()).ok()?;
    // Either part may be empty.
    let mantissa: i128 = format!("0{whole}{fraction}").parse().ok()?;
    let factor = |base: i128, power: i32| base.checked_pow(power.unsigned_abs());
    let (mut above, mut below) = (mantissa.checked_mul(NANO)?, factor(10, shift)?);
    if power < 0 {
        below = below.checked_mul(factor(base, power)?)?;
    } else {
        above = above.checked_mul(factor(base, power)?)?;
    }
    Some(above / below + i128::from(above % below != 0))
}

fn format_quantity(nanos: i128, form: Form) -> String {
    if form == Form::Binary && nanos % NANO == 0 && nanos >= 1024 * NANO {
        let (number, times) = reduced(nanos / NANO, 1024, BINARY.len() - 1);
        return format!("{number}{}", BINARY[times]);
    }
    let max = if form == Form::Exponent {
        usize::MAX
    } else {
        THOUSANDS.len() - 1
    };
    let (number, times) = reduced(nanos, 1000, max);
    match (form, times) {
        _ if number == 0 => "0".into(),
        (Form::Exponent, 3) => number.to_string(),
        (Form::Exponent, _) => format!("{number}e{}", i32::try_from(times).unwrap_or(0) * 3 - 9),
        _ => format!("{number}{}", THOUSANDS[times]),
    }
}

/// Divides the number by `factor` up to `max` times, while divisible; also returns the number of
/// divisions.
fn reduced(mut number: i128, factor: i128, max: usize) -> (i128, usize) {
    let mut times = 0;
    while times < max && number != 0 && number % factor == 0 {
        number /= factor;
        times += 1;
    }
    (number, times)
}

#[cfg(test)]
mod tests {
    use super::*;

    use yaml;

    fn pod(text: &str) -> (Value, Vec<String>) {
        let mut parts = Parts::default();
        let value = parts
            .value("podSpec", &yaml::document(text).unwrap(), POD)
            .unwrap();
        (value, parts.notes)
    }

    #[test]
    fn every_kind_in_the_table_exists() {
        let basic = [
            "text", "flag", "int32", "int64", "quantity", "port", "time", "any",
        ];
        assert!(TYPES.len() > 90);
        for field in TYPES.values().flatten() {
            let kind = field.kind.trim_start_matches(['[', ']', '{', '}']);
            assert!(
                basic.contains(&kind) || TYPES.contains_key(kind),
                "{}: {kind}",
                field.name
            );
        }
    }

    #[test]
    fn parts_are_formatted_like_kubernetes() {
        for (text, expected) in [
            ("{}", json!({"containers": null})),
            (
                "{containers: [], hostNetwork: false, nodeSelector: {}, dnsPolicy: ''}",
                json!({"containers": []}),
            ),
            (
                "containers: [{}, null]",
                json!({"containers": [{"name": ""}, {"name": ""}]}),
            ),
            (
                "containers: [{name: a, args: [], tty: false, stdin: true, resources: {limits: \
                 {}}}]",
                json!({"containers": [{"name": "a", "stdin": true}]}),
            ),
            (
                "containers: [{name: a, resources: {limits: {cpu: 0.5, memory: 1024Mi}, requests: \
                 {cpu: 1}}}]",
                json!({"containers": [{
                    "name": "a",
                    "resources": {"limits": {"cpu": "500m", "memory": "1Gi"}, "requests": {"cpu": "1"}},
                }]}),
            ),
            (
                "containers: [{name: a, env: [{value: ''}, {name: B, valueFrom: {}}], \
                 livenessProbe: {httpGet: {path: /}}}]",
                json!({"containers": [{
                    "name": "a", "env": [{"name": ""}, {"name": "B", "valueFrom": {}}],
                    "livenessProbe": {"httpGet": {"path": "/", "port": 0}},
                }]}),
            ),
            (
                "{containers: [], securityContext: {runAsUser: 0, runAsNonRoot: false}, \
                 terminationGracePeriodSeconds: 0}",
                json!({
                    "containers": [], "securityContext": {"runAsNonRoot": false, "runAsUser": 0},
                    "terminationGracePeriodSeconds": 0,
                }),
            ),
            (
                "{containers: [], volumes: [{hostPath: {}}, {name: e, emptyDir: {medium: ''}}, \
                 {name: c, configMap: {items: []}}]}",
                json!({"containers": [], "volumes": [
                    {"name": "", "hostPath": {"path": ""}}, {"name": "e", "emptyDir": {}}, {"name": "c", "configMap": {}},
                ]}),
            ),
        ] {
            assert_eq!(pod(text), (expected, Vec::new()), "{text}");
        }
    }

    #[test]
    fn misplaced_fields_are_omitted_and_future_ones_kept() {
        let text = "{containers: [{name: a, tolerations: [], volumes: [{}], Image: i, some-key: \
                    1}], image: i, fieldOfTomorrow: {a: [1]}, nothing: null}";
        let (value, notes) = pod(text);
        assert_eq!(
            value,
            json!({"containers": [{"name": "a"}], "fieldOfTomorrow": {"a": [1]}})
        );
        assert_eq!(
            notes,
            [
                "`podSpec.containers[0].tolerations` is left out: it is a field of the pod, in \
                 `podSpec`",
                "`podSpec.containers[0].volumes` is left out: it is a field of the pod, in \
                 `podSpec`",
                "`podSpec.containers[0].Image` is left out: it is spelled `image`",
                "`podSpec.containers[0].some-key` is left out: there is no such field",
                "`podSpec.image` is left out: it is a field of a container",
                "unknown field `podSpec.fieldOfTomorrow` is passed on; check its spelling",
            ]
        );
    }

    #[test]
    fn wrong_kinds_are_refused_everywhere() {
        for (text, words) in [
            ("{priority: 3000000000}", "`podSpec.priority` is too large"),
            (
                "{overhead: {cpu: much}}",
                "`podSpec.overhead.cpu` is `much`, which is not a quantity",
            ),
            (
                "{overhead: {cpu: [1]}}",
                "`podSpec.overhead.cpu` must be a quantity",
            ),
            (
                "{affinity: {nodeAffinity: []}}",
                "`podSpec.affinity.nodeAffinity` must be a map",
            ),
            (
                "{containers: [{livenessProbe: {tcpSocket: {port: 1.5}}}]}",
                ".port` must be a whole number or a name",
            ),
        ] {
            let error = Parts::default()
                .value("podSpec", &yaml::document(text).unwrap(), POD)
                .expect_err(text);
            assert!(error.message.contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn quantities_are_formatted_like_kubernetes() {
        for (text, expected) in [
            ("1", "1"),
            ("0.5", "500m"),
            ("500m", "500m"),
            ("1000m", "1"),
            ("1500m", "1500m"),
            ("2.0", "2"),
            ("1.", "1."),
            ("1.500", "1.500"),
            ("39.653", "39.653"),
            ("1.5000", "1500m"),
            ("0.123", "123m"),
            (" 1 ", "1"),
            ("+77m", "+77m"),
            ("+0.5", "500m"),
            ("10e0", "10e0"),
            ("4e25", "40e24"),
            ("8Gi", "8Gi"),
            ("9Ei", "9223372036854775807"),
            (".5", "500m"),
            ("+1", "+1"),
            ("-1500", "-1500"),
            ("-0", "0"),
            ("0Gi", "0"),
            ("1024", "1024"),
            ("1000", "1k"),
            ("128974848", "128974848"),
            ("1024Mi", "1Gi"),
            ("1.5Gi", "1536Mi"),
            ("0.5Ki", "512"),
            ("1.5Ki", "1536"),
            ("1.0001Ki", "1024102400u"),
            ("1048576Ki", "1Gi"),
            ("100M", "100M"),
            ("1E", "1E"),
            ("1e3", "1e3"),
            ("1E4", "10e3"),
            ("12e6", "12e6"),
            ("1e-3", "1e-3"),
            ("5n", "5n"),
            ("0.1n", "1n"),
            ("0.0001", "100u"),
        ] {
            assert_eq!(canonical(text).as_deref(), Some(expected), "{text}");
        }
        let huge = format!("1{}", "0".repeat(60));
        assert_eq!(canonical(&huge), Some(huge.clone()));
        for text in [
            "", ".", "1.2.3", "a", "1x", "1 Gi", "1gi", "--1", "1e", "1e1.5", "Ki", "1Kib", "ä",
        ] {
            assert_eq!(canonical(text), None, "{text}");
        }
    }
}
