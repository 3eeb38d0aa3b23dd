//! A certificate with its key, and whose it is.

use client::protocol::ResultId;
use rustls::pki_types::CertificateDer;

/// What stands before a plugin's name in the URI that identifies it.
pub(super) const PLUGIN_URI: &str = "sonobuoy://plugin/";
/// What stands between the plugin's name and its node's, where a certificate is for one node.
const NODE: &str = "node";

/// One certificate and its private key, both PEM; the key is SEC1, which workers written in Go insist on.
#[derive(Clone)]
pub struct Identity {
    /// The certificate alone, without its authority.
    pub cert_pem: String,
    /// The private key, `EC PRIVATE KEY`.
    pub key_pem: String,
}

/// As whom a request comes, as its verified certificate says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// Any worker of this plugin: all of them share one certificate.
    Plugin(String),
    /// The one that brings this result, and nobody else.
    Result(ResultId),
}

impl Caller {
    /// The holder of a certificate: what its one URI says, else its one DNS name, which stands for a plugin. The second
    /// is for certificates that another program had signed by the same authority.
    pub(crate) fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let parsed = webpki::EndEntityCert::try_from(certificate).ok()?;
        let mut uris = parsed.valid_uri_names();
        if let Some(uri) = uris.next() {
            let name = uri.strip_prefix(PLUGIN_URI).filter(|_| uris.next().is_none())?;
            return match name.split('/').collect::<Vec<_>>()[..] {
                [plugin] => Some(Self::Plugin(unescape(plugin)?)),
                [plugin, NODE, node] => {
                    Some(Self::Result(ResultId::on_node(unescape(plugin)?, unescape(node)?)))
                }
                _ => None,
            };
        }
        let mut names = parsed.valid_dns_names();
        let name = names.next()?;
        names.next().is_none().then(|| Self::Plugin(name.to_owned()))
    }

    /// Whether it may speak for this result.
    pub(crate) fn may(&self, id: &ResultId) -> bool {
        match self {
            Self::Plugin(plugin) => *plugin == id.plugin,
            Self::Result(own) => own == id,
        }
    }

    /// How closely it is known: by its plugin or by its node, as status and archive say it.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Plugin(_) => "plugin",
            Self::Result(_) => "node",
        }
    }
}

impl std::fmt::Display for Caller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Plugin(plugin) => write!(f, "plugin `{plugin}`"),
            Self::Result(id) => write!(f, "`{id}`"),
        }
    }
}

/// The plugin that the holder of a certificate belongs to: what its workers take, they take together.
pub(crate) fn plugin_of(certificate: &CertificateDer<'static>) -> Option<String> {
    Some(match Caller::of(certificate)? {
        Caller::Plugin(plugin) => plugin,
        Caller::Result(id) => id.plugin,
    })
}

/// The URI of the one that brings this result.
pub(super) fn result_uri(id: &ResultId) -> String {
    format!("{PLUGIN_URI}{}/{NODE}/{}", escape(&id.plugin), escape(&id.node))
}

/// Writes a plugin's name so that it can stand in a URI.
pub(super) fn escape(name: &str) -> String {
    name.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                char::from(byte).to_string()
            }
            _ => format!("%{byte:02X}"),
        })
        .collect()
}

fn unescape(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte == b'%' {
            let (&[high, low], after) = rest.split_first_chunk::<2>()?;
            rest = after;
            let digit = |byte| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
            out.push(digit(high)? << 4 | digit(low)?);
        } else {
            out.push(byte);
        }
    }
    String::from_utf8(out).ok().filter(|name| !name.is_empty())
}
