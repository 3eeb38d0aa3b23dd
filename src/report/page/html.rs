//! Markup that is safe by construction: literals are markup, everything else is escaped text.

use std::fmt::{Display, Write as _};

use base::{visible, xml};

/// Maximum readable letters of an anchor.
const MAX_READABLE_BYTES: usize = 40;
/// Letters of a digest, five bits each.
const DIGEST_LETTERS: u32 = 8;

/// Markup.
#[derive(Clone, Default)]
pub(super) struct Html(String);

impl Html {
    /// The markup.
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a part.
    pub(super) fn add(&mut self, part: impl Part) {
        part.write(&mut self.0);
    }
}

/// Adds parts to some markup: `html!(page, "<p>", text(name), "</p>")`.
macro_rules! html {
    ($html:expr, $($part:expr),* $(,)?) => {{ $( $html.add($part); )* }};
}
pub(super) use html;

/// A part of a page. Only literals and markup are written as they are.
pub(super) trait Part {
    fn write(self, out: &mut String);
}

impl Part for &'static str {
    fn write(self, out: &mut String) {
        out.push_str(self);
    }
}

impl Part for &Html {
    fn write(self, out: &mut String) {
        out.push_str(&self.0);
    }
}

/// Text for any place in the page, including attributes.
pub(super) struct Text<T>(T);

/// Escapes a text.
pub(super) fn text<T: Display>(text: T) -> Text<T> {
    Text(text)
}

impl<T: Display> Part for Text<T> {
    fn write(self, out: &mut String) {
        out.push_str(&escape(&self.0.to_string()));
    }
}

/// A list of equal parts.
pub(super) struct Each<I, F>(I, F);

/// Writes each element of a list.
pub(super) fn each<I: IntoIterator, F: FnMut(&mut Html, I::Item)>(list: I, write: F) -> Each<I, F> {
    Each(list, write)
}

impl<I: IntoIterator, F: FnMut(&mut Html, I::Item)> Part for Each<I, F> {
    fn write(mut self, out: &mut String) {
        let mut html = Html(std::mem::take(out));
        for element in self.0 {
            (self.1)(&mut html, element);
        }
        *out = html.0;
    }
}

/// Escapes text; control characters, which HTML refuses, and those that reverse the order of
/// letters become visible escapes.
fn escape(text: &str) -> String {
    xml::escape(&visible::text(text), false)
        .replace('"', "&quot;")
        .replace('\'', "&#39;")
}

/// A sentence with words between backticks as code.
pub(super) fn prose(sentence: &str) -> Html {
    let mut html = Html::default();
    for (at, part) in sentence.split('`').enumerate() {
        if at % 2 == 0 {
            html!(html, text(part));
        } else {
            html!(html, "<code>", text(part), "</code>");
        }
    }
    html
}

/// The anchor of an entry: readable for a single name, and the same in every run and version.
pub(super) fn anchor(kind: &str, names: &[&str]) -> String {
    let harmless = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.' || c == '_';
    let mut anchor = format!("{kind}-");
    match names {
        [name]
            if name.len() <= MAX_READABLE_BYTES
                && !name.is_empty()
                && name.chars().all(harmless) =>
        {
            anchor.push_str(name);
        }
        names => {
            let digest = digest(names);
            for at in 0..DIGEST_LETTERS {
                let letters = b"0123456789abcdefghjkmnpqrstvwxyz";
                anchor.push(char::from(letters[(digest >> (5 * at) & 31) as usize]));
            }
        }
    }
    anchor
}

/// FNV-1a.
fn digest(names: &[&str]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in names.iter().flat_map(|name| name.bytes().chain([0])) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash
}

/// A number with at most one digit after the point.
pub(super) fn tenth(number: f64) -> String {
    let mut text = String::new();
    // Writing to memory does not fail.
    let _ = write!(text, "{}", (number * 10.0).round() / 10.0);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_literals_are_markup() {
        let mut page = Html::default();
        let name = "<a b=\"c\" d='e'> & \u{1b}";
        html!(
            page,
            "<p>",
            text(name),
            "</p>",
            each([1, 2], |page, number| {
                html!(page, "<i>", text(number), "</i>");
            })
        );
        let expected =
            "<p>&lt;a b=&quot;c&quot; d=&#39;e&#39;&gt; &amp; \\u001b</p><i>1</i><i>2</i>";
        assert_eq!(page.as_str(), expected);
    }

    #[test]
    fn backticks_are_rendered_as_code() {
        let rendered = |sentence| prose(sentence).as_str().to_owned();
        assert_eq!(
            rendered("run `a <b>` and `c`"),
            "run <code>a &lt;b&gt;</code> and <code>c</code>"
        );
        assert_eq!(rendered("`open"), "<code>open</code>");
    }

    #[test]
    fn anchors_are_the_same_in_every_run() {
        assert_eq!(anchor("plugin", &["e2e"]), "plugin-e2e");
        assert_eq!(anchor("t", &["e2e", "", "a test"]), "t-w45j0836");
        assert_eq!(anchor("plugin", &["a b"]).len(), "plugin-".len() + 8);
        assert_ne!(anchor("t", &["a", "b"]), anchor("t", &["ab", ""]));
    }
}
