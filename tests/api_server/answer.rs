//! Responds to requests.

use std::io::Cursor;

use serde_json::{Value, json};
use tiny_http::{Header, Method, Request, Response};

use super::store::{Kind, Place, parse, selected, strategic};
use super::{ApiServer, fault, stream};

/// A parsed request.
pub(super) struct Call {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) query: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
    /// Of the body.
    pub(super) content_type: String,
    /// Number of bytes after which to cut the response's body.
    pub(super) cut: Option<usize>,
}

impl Call {
    pub(super) fn get(&self, name: &str) -> &str {
        self.query
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
            .unwrap_or_default()
    }

    pub(super) fn all(&self, name: &str) -> Vec<String> {
        self.query
            .iter()
            .filter(|(key, _)| key == name)
            .map(|(_, value)| value.clone())
            .collect()
    }
}

/// A refusal: status, reason, message.
pub(super) struct No(u16, String, String);

fn no<T>(code: u16, reason: &str, message: impl Into<String>) -> Result<T, No> {
    Err(No(code, reason.into(), message.into()))
}

fn header(request: &Request, name: &'static str) -> String {
    let mut headers = request.headers().iter();
    let found = headers.find(|header| header.field.equiv(name));
    found
        .map(|header| header.value.as_str().to_owned())
        .unwrap_or_default()
}

pub(super) fn answer(api: &ApiServer, mut request: Request) {
    let url = request.url().to_owned();
    let (path, query) = url.split_once('?').unwrap_or((&url, ""));
    let query = query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(name), decode(value))
        });
    let mut call = Call {
        method: request.method().to_string(),
        path: decode(path),
        query: query.collect(),
        body: Vec::new(),
        content_type: header(&request, "content-type"),
        cut: None,
    };
    // The body of an upgrade request never ends.
    if call.method != "GET" && request.as_reader().read_to_end(&mut call.body).is_err() {
        return;
    }
    let line = format!("{} {}", call.method, decode(&url));
    let strike = {
        let mut state = api.lock();
        state.requests.push(line.clone());
        state
            .faults
            .iter_mut()
            .find_map(|fault| fault.strikes(&line).then(|| fault.clone()))
    };
    api.shared.changed.notify_all();
    if let Some(fault) = strike {
        match fault.kind {
            fault::Kind::Status(code, reason, message) => {
                return refuse(
                    request,
                    &No(code, reason, message),
                    fault.retry_after,
                    json!({}),
                );
            }
            fault::Kind::Drop => {
                let peer = request.remote_addr().copied();
                // Held open until the connection is cut: tiny_http responds with 500 to a dropped
                // request.
                peer.into_iter().for_each(|peer| api.shared.wire.cut(&peer));
                return;
            }
            fault::Kind::Slow(by) => {
                // Not a wait for an event: the slowness is intended.
                let (_held, never) = std::sync::mpsc::channel::<()>();
                let _ = never.recv_timeout(by);
            }
            fault::Kind::Cut(after) => call.cut = Some(after),
            fault::Kind::Gone => {
                let meta = json!({"continue": format!("{}.{}", api.lock().store.version, position(call.get("continue")))});
                return refuse(
                    request,
                    &No(410, "Expired".into(), "the token is too old".into()),
                    None,
                    meta,
                );
            }
            fault::Kind::Endless(line) => return stream::endless(request, &line),
            fault::Kind::Garbage(text) => return send(api, &call, request, 200, text.into_bytes()),
        }
    }
    let token = api.lock().token.clone();
    if token.is_some_and(|token| header(&request, "authorization") != format!("Bearer {token}")) {
        return refuse(
            request,
            &No(401, "Unauthorized".into(), "Unauthorized".into()),
            None,
            json!({}),
        );
    }
    if header(&request, "upgrade").eq_ignore_ascii_case("websocket") {
        return stream::upgrade(api, &call, request);
    }
    let accept = header(&request, "accept");
    if let Some(place) = parse(&call.path).filter(|_| call.method == "GET") {
        if matches!(call.get("watch"), "true" | "1") {
            return match permitted(api, "watch", &place) {
                Ok(()) => stream::watch(api, &call, &place, request),
                Err(no) => refuse(request, &no, None, json!({})),
            };
        }
        if place.plural == "pods" && place.sub == "log" {
            return stream::log(api, &call, &place, request);
        }
    }
    match handle(api, &call, &accept) {
        Ok((code, body)) => send(api, &call, request, code, body),
        Err(refusal) => refuse(request, &refusal, None, json!({})),
    }
}

fn handle(api: &ApiServer, call: &Call, accept: &str) -> Result<(u16, Vec<u8>), No> {
    if call.path.ends_with("/proxy/logs/") && !accept.contains("*/*") {
        // As a real kubelet, whose logs are not JSON.
        return no(
            406,
            "NotAcceptable",
            "Not Acceptable Available representations: ",
        );
    }
    if let Some((code, body)) = api
        .lock()
        .raw
        .get(&call.path)
        .cloned()
        .filter(|_| call.method == "GET")
    {
        return Ok((code, body));
    }
    let found = match call.path.as_str() {
        "/version" => Some(
            json!({"major": "1", "minor": "34", "gitVersion": "v1.34.2", "platform": "linux/amd64"}),
        ),
        "/api" | "/apis" => Some(discovery(api, &call.path, accept)),
        _ => group(api, &call.path)?,
    };
    if let Some(document) = found {
        return Ok((200, document.to_string().into_bytes()));
    }
    let Some(place) = parse(&call.path) else {
        return no(
            404,
            "NotFound",
            "the server could not find the requested resource",
        );
    };
    let body = || {
        serde_json::from_slice::<Value>(&call.body)
            .or_else(|why| no(400, "BadRequest", why.to_string()))
    };
    if place.plural == "selfsubjectaccessreviews" {
        let mut review = body()?;
        let wish = review["spec"]["resourceAttributes"].clone();
        let [verb, plural] =
            ["verb", "resource"].map(|field| wish[field].as_str().unwrap_or_default().to_owned());
        review["status"]["allowed"] = (!denied(api, &verb, &plural)).into();
        return Ok((201, review.to_string().into_bytes()));
    }
    if place.plural == "selfsubjectrulesreviews" {
        let mut review = body()?;
        let every = json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]});
        let is_restricted = !api.lock().denied.is_empty();
        review["status"] = json!({"resourceRules": [every], "incomplete": is_restricted});
        return Ok((201, review.to_string().into_bytes()));
    }
    if place.plural == "tokenreviews" {
        permitted(api, "create", &place)?;
        let mut review = body()?;
        review["status"] = api.review_token(&review["spec"]);
        return Ok((201, review.to_string().into_bytes()));
    }
    let Some(kind) = api
        .lock()
        .kinds
        .iter()
        .find(|kind| kind.serves(&place))
        .cloned()
    else {
        return no(
            404,
            "NotFound",
            "the server could not find the requested resource",
        );
    };
    let absent = || {
        no(
            404,
            "NotFound",
            format!("{} \"{}\" not found", place.plural, place.name),
        )
    };
    let single = !place.name.is_empty();
    // As in a real server: the options of a deletion are in its body, and in the query only without
    // a body.
    let dry = match serde_json::from_slice::<Value>(&call.body) {
        Ok(options) if call.method == "DELETE" => options["dryRun"] == json!(["All"]),
        _ => call.get("dryRun") == "All",
    };
    let verb = match (call.method.as_str(), single) {
        ("GET", true) => "get",
        ("GET", false) => "list",
        ("POST", _) => "create",
        ("PATCH", _) => "patch",
        ("PUT", _) => "update",
        ("DELETE", true) => "delete",
        ("DELETE", false) => "deletecollection",
        _ => return no(405, "MethodNotAllowed", "no such method"),
    };
    permitted(api, verb, &place)?;
    let object = match verb {
        "get" => match api.lock().store.get(&place) {
            Some(object) => object,
            None => return absent(),
        },
        "list" => list(api, call, &place, &kind)?,
        "create" => {
            return create(api, &place, &kind, body()?, dry)
                .map(|object| (201, object.to_string().into_bytes()));
        }
        "update" => api.put(&place.path(), body()?),
        "patch" => {
            let patch = body()?;
            let Some(known) = api.lock().store.get(&place) else {
                return absent();
            };
            if dry {
                known
            } else {
                let wanted = &patch["metadata"]["resourceVersion"];
                if wanted.is_string() && *wanted != known["metadata"]["resourceVersion"] {
                    return no(409, "Conflict", "the object has been modified");
                }
                let is_strategic = call.content_type.contains("strategic");
                let patch = match is_strategic {
                    true => strategic(&known, patch),
                    false => patch,
                };
                api.merge(&place.path(), &patch)
            }
        }
        _ => {
            let options: Value = serde_json::from_slice(&call.body).unwrap_or_default();
            let uid = &options["preconditions"]["uid"];
            let known = api.lock().store.get(&place);
            if known.is_some_and(|known| uid.is_string() && *uid != known["metadata"]["uid"]) {
                return no(
                    409,
                    "Conflict",
                    format!("the UID in the precondition is {uid}"),
                );
            }
            api.lock().deletions.push((place.path(), options));
            match delete(api, call, &place, dry) {
                Some(status) => status,
                None => return absent(),
            }
        }
    };
    Ok((200, object.to_string().into_bytes()))
}

fn create(
    api: &ApiServer,
    place: &Place,
    kind: &Kind,
    mut object: Value,
    dry: bool,
) -> Result<Value, No> {
    if object["kind"] != kind.kind.as_str() {
        return no(
            400,
            "BadRequest",
            format!("{} does not match the kind {}", object["kind"], kind.kind),
        );
    }
    let meta = &object["metadata"];
    let name = match (meta["name"].as_str(), meta["generateName"].as_str()) {
        (Some(name), _) => name.to_owned(),
        (None, Some(prefix)) => format!("{prefix}{:05}", api.lock().store.version),
        (None, None) => return no(422, "Invalid", "name or generateName is required"),
    };
    if kind.namespaced {
        let stated = meta["namespace"].as_str().unwrap_or(&place.namespace);
        if stated != place.namespace {
            return no(
                400,
                "BadRequest",
                "the namespace of the object does not match the namespace of the request",
            );
        }
        let namespace = api.get(&format!("/api/v1/namespaces/{stated}"));
        match namespace {
            None => {
                return no(
                    404,
                    "NotFound",
                    format!("namespaces \"{stated}\" not found"),
                );
            }
            Some(namespace) if namespace["status"]["phase"] == "Terminating" => {
                return no(
                    403,
                    "Forbidden",
                    format!("namespace {stated} is being terminated"),
                );
            }
            Some(_) => {}
        }
    }
    let place = Place {
        name,
        ..place.clone()
    };
    if api.lock().store.get(&place).is_some() {
        return no(
            409,
            "AlreadyExists",
            format!("{} \"{}\" already exists", place.plural, place.name),
        );
    }
    let judge = api.lock().admission.clone();
    if let Some((code, reason, message)) = judge.and_then(|judge| judge(&place.plural, &object)) {
        return Err(No(code, reason, message));
    }
    object["metadata"]["name"] = place.name.clone().into();
    if dry {
        return Ok(object);
    }
    if kind.kind == "Namespace" {
        object["status"]["phase"] = "Active".into();
    } else if kind.kind == "Pod" && object["status"]["phase"].is_null() {
        object["status"]["phase"] = "Pending".into();
    }
    Ok(api.put(&place.path(), object))
}

fn delete(api: &ApiServer, call: &Call, place: &Place, dry: bool) -> Option<Value> {
    let places = if place.name.is_empty() {
        let chosen = api.lock().store.list(place).into_iter();
        let chosen = chosen.filter(|object| {
            selected(object, call.get("labelSelector"), call.get("fieldSelector"))
        });
        let text = |object: &Value, field: &str| {
            object["metadata"][field]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        };
        chosen
            .map(|object| Place {
                name: text(&object, "name"),
                namespace: text(&object, "namespace"),
                ..place.clone()
            })
            .collect()
    } else {
        api.lock().store.get(place)?;
        vec![place.clone()]
    };
    if !dry {
        for place in places {
            let deleted = api.lock().store.delete(&place);
            if let Some((_, changes)) = deleted {
                api.tell(changes);
            }
        }
    }
    Some(json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}))
}

/// The prefix of a `continue` token's key is the version at its creation.
fn position(token: &str) -> &str {
    token
        .split_once('.')
        .map(|(_, key)| key)
        .unwrap_or_default()
}

fn list(api: &ApiServer, call: &Call, place: &Place, kind: &Kind) -> Result<Value, No> {
    let state = api.lock();
    let token = call.get("continue");
    let made = token
        .split_once('.')
        .and_then(|(version, _)| version.parse::<u64>().ok());
    if made.is_some_and(|version| version < state.store.oldest) {
        return no(410, "Expired", "The provided continue parameter is too old");
    }
    let limit = call
        .get("limit")
        .parse()
        .ok()
        .filter(|limit| *limit > 0)
        .unwrap_or(usize::MAX);
    let key = |object: &Value| {
        let text = |field: &str| {
            object["metadata"][field]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        };
        format!("{}/{}", text("namespace"), text("name"))
    };
    let all = state.store.list(place);
    let mut chosen = all
        .into_iter()
        .filter(|object| selected(object, call.get("labelSelector"), call.get("fieldSelector")))
        .filter(|object| token.is_empty() || key(object).as_str() > position(token));
    let items: Vec<Value> = chosen.by_ref().take(limit).collect();
    let version = made.unwrap_or(state.store.version);
    let mut meta = json!({"resourceVersion": version.to_string()});
    if chosen.next().is_some() {
        meta["continue"] =
            format!("{version}.{}", items.last().map(key).unwrap_or_default()).into();
    }
    // Servers send kind and version once, not with each item.
    let items: Vec<Value> = items
        .into_iter()
        .map(|mut item| {
            let fields = item.as_object_mut().unwrap();
            fields.remove("kind");
            fields.remove("apiVersion");
            item
        })
        .collect();
    Ok(
        json!({"kind": format!("{}List", kind.kind), "apiVersion": kind.group_version(), "metadata": meta, "items": items}),
    )
}

fn denied(api: &ApiServer, verb: &str, plural: &str) -> bool {
    api.lock()
        .denied
        .iter()
        .any(|(v, p)| (v == verb || v == "*") && (p == plural || p == "*"))
}

fn permitted(api: &ApiServer, verb: &str, place: &Place) -> Result<(), No> {
    let subresource = format!("{}/{}", place.plural, place.sub);
    if denied(api, verb, &place.plural) || denied(api, verb, &subresource) {
        return no(
            403,
            "Forbidden",
            format!(
                "{} is forbidden: User \"test\" cannot {verb} resource",
                place.plural
            ),
        );
    }
    Ok(())
}

const VERBS: [&str; 8] = [
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
];

fn discovery(api: &ApiServer, root: &str, accept: &str) -> Value {
    let state = api.lock();
    let core = root == "/api";
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for kind in state
        .kinds
        .iter()
        .filter(|kind| kind.group.is_empty() == core)
    {
        match groups.iter_mut().find(|(group, _)| *group == kind.group) {
            Some((_, versions)) if versions.contains(&kind.version.as_str()) => {}
            Some((_, versions)) => versions.push(&kind.version),
            None => groups.push((&kind.group, vec![&kind.version])),
        }
    }
    let full = |group: &str, version: &str| {
        Kind::new(&format!("{group}/{version}"), "", "", false).group_version()
    };
    if accept.contains("apidiscovery") && !state.plain_discovery {
        let items: Vec<Value> = groups
            .iter()
            .map(|(group, versions)| {
                let versions: Vec<Value> = versions
                    .iter()
                    .map(|version| {
                        let stale = state.stale.contains(&full(group, version));
                        let kinds = state
                            .kinds
                            .iter()
                            .filter(|k| !stale && k.group == *group && k.version == *version);
                        let resources: Vec<Value> = kinds
                            .map(|kind| {
                                json!({
                                    "resource": kind.plural,
                                    "responseKind": {"group": "", "version": "", "kind": kind.kind},
                                    "scope": if kind.namespaced { "Namespaced" } else { "Cluster" },
                                    "singularResource": kind.kind.to_lowercase(),
                                    "verbs": VERBS,
                                })
                            })
                            .collect();
                        let freshness = if stale { "Stale" } else { "Current" };
                        json!({"version": version, "resources": resources, "freshness": freshness})
                    })
                    .collect();
                let meta = if core {
                    json!({"creationTimestamp": null})
                } else {
                    json!({"name": group})
                };
                json!({"metadata": meta, "versions": versions})
            })
            .collect();
        return json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items});
    }
    if core {
        return json!({"kind": "APIVersions", "versions": ["v1"]});
    }
    let groups: Vec<Value> = groups
        .iter()
        .map(|(group, versions)| {
            let versions: Vec<Value> = versions
                .iter()
                .map(|v| json!({"groupVersion": full(group, v), "version": v}))
                .collect();
            json!({"name": group, "preferredVersion": versions[0], "versions": versions})
        })
        .collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// The kinds of one group, if the path is one.
fn group(api: &ApiServer, path: &str) -> Result<Option<Value>, No> {
    let wanted = match path.split('/').collect::<Vec<_>>().as_slice() {
        ["", "api", version] => (*version).to_owned(),
        ["", "apis", group, version] => format!("{group}/{version}"),
        _ => return Ok(None),
    };
    let state = api.lock();
    if state.stale.contains(&wanted) {
        return no(
            503,
            "ServiceUnavailable",
            "the server is currently unable to handle the request",
        );
    }
    let resources: Vec<Value> = state
        .kinds
        .iter()
        .filter(|kind| kind.group_version() == wanted)
        .map(|kind| json!({"name": kind.plural, "kind": kind.kind, "namespaced": kind.namespaced, "verbs": VERBS}))
        .collect();
    if resources.is_empty() {
        return no(
            404,
            "NotFound",
            "the server could not find the requested resource",
        );
    }
    Ok(Some(
        json!({"kind": "APIResourceList", "groupVersion": wanted, "resources": resources}),
    ))
}

pub(super) fn send(api: &ApiServer, call: &Call, request: Request, code: u16, body: Vec<u8>) {
    let Some(cut) = call.cut else {
        let response = Response::from_data(body)
            .with_status_code(code)
            .with_header(json_header());
        let _ = request.respond(response.with_chunked_threshold(usize::MAX));
        return;
    };
    let peer = request.remote_addr().copied();
    let head = format!(
        "HTTP/1.1 {code} OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let mut writer = request.into_writer();
    let _ = writer
        .write_all(head.as_bytes())
        .and_then(|()| writer.write_all(&body[..cut.min(body.len())]));
    let _ = writer.flush();
    peer.into_iter().for_each(|peer| api.shared.wire.end(&peer));
}

pub(super) fn refuse(request: Request, no: &No, retry_after: Option<u64>, meta: Value) {
    let No(code, reason, message) = no;
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": meta, "status": "Failure",
        "message": message, "reason": reason, "code": code,
    });
    let mut response = Response::new(
        (*code).into(),
        vec![json_header()],
        Cursor::new(status.to_string()),
        Some(status.to_string().len()),
        None,
    );
    if let Some(seconds) = retry_after {
        response.add_header(Header::from_bytes("Retry-After", seconds.to_string()).unwrap());
    }
    if *request.method() == Method::Head {
        return;
    }
    let _ = request.respond(response);
}

/// A refusal for other files.
pub(super) fn bad_request(request: Request, message: String) {
    refuse(
        request,
        &No(400, "BadRequest".into(), message),
        None,
        json!({}),
    );
}

pub(super) fn not_found(request: Request, message: &str) {
    refuse(
        request,
        &No(404, "NotFound".into(), message.into()),
        None,
        json!({}),
    );
}

fn json_header() -> Header {
    Header::from_bytes("Content-Type", "application/json").unwrap()
}

pub(super) fn decode(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'%' => {
                let hex: Vec<u8> = bytes.by_ref().take(2).collect();
                out.push(
                    u8::from_str_radix(std::str::from_utf8(&hex).unwrap_or("3F"), 16)
                        .unwrap_or(b'?'),
                );
            }
            b'+' => out.push(b' '),
            byte => out.push(byte),
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}
