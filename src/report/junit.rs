//! Elements of JUnit documents, for the results of plugins and for the checks of `doctor`.

use base::xml::escape;

/// The first line of a document.
pub const HEAD: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>";

/// The start of an element, without its end; attributes without a value are omitted.
pub fn tag(name: &str, attributes: &[(&str, Option<&str>)]) -> String {
    let mut tag = format!("<{name}");
    for (key, value) in attributes {
        if let Some(value) = value {
            // Line ends in attributes are encoded, so that readers preserve them.
            tag += &format!(" {key}=\"{}\"", escape(value, true));
        }
    }
    tag
}

/// An element inside a test.
pub fn element(
    name: &str,
    kind: Option<&str>,
    message: Option<&str>,
    text: Option<&str>,
) -> String {
    let open = tag(name, &[("type", kind), ("message", message)]);
    match text {
        Some(text) => format!("{open}>{}</{name}>", escape(text, false)),
        None => open + "/>",
    }
}
