//! A certificate with its key, and the identity of its holder.

use client::protocol::ResultId;
use rustls::pki_types::CertificateDer;

/// Prefix of the URI that identifies a plugin.
pub(super) const PLUGIN_URI: &str = "sonobuoy://plugin/";
/// Separates the plugin's name from its node's, in certificates for one node.
const NODE: &str = "node";

/// One certificate and its private key, both PEM; the key is SEC1, which workers written in Go require.
#[derive(Clone)]
pub struct Identity {
    /// The certificate alone, without its authority.
    pub cert_pem: String,
    /// The private key, `EC PRIVATE KEY`.
    pub key_pem: String,
}

/// The sender of a request, according to its verified certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// Any worker of this plugin, all of which share one certificate.
    Plugin(String),
    /// The sender of this result only.
    Result(ResultId),
}

impl Caller {
    /// The holder of a certificate: identified by its only URI, else by its only DNS name, which is a plugin's. The latter
    /// supports certificates that another program requested from the same authority.
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

    /// Whether the holder may send this result.
    pub(crate) fn may(&self, id: &ResultId) -> bool {
        match self {
            Self::Plugin(plugin) => *plugin == id.plugin,
            Self::Result(own) => own == id,
        }
    }

    /// Precision of the identification: by plugin or by node, as in status and archive.
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

/// The plugin of a certificate's holder: quotas apply to all workers of a plugin together.
pub(crate) fn plugin_of(certificate: &CertificateDer<'static>) -> Option<String> {
    Some(match Caller::of(certificate)? {
        Caller::Plugin(plugin) => plugin,
        Caller::Result(id) => id.plugin,
    })
}

/// The URI of the sender of this result.
pub(super) fn result_uri(id: &ResultId) -> String {
    format!("{PLUGIN_URI}{}/{NODE}/{}", base::percent_encoded(&id.plugin), base::percent_encoded(&id.node))
}

fn unescape(text: &str) -> Option<String> {
    base::percent_decoded(text).filter(|name| !name.is_empty())
}
