//! Which proxy to use for a server, by the rules that Go programs follow.
//!
//! Owns the parsing of proxy addresses and of `NO_PROXY`. Opens no connection; reads the
//! environment only on request.

use std::fmt;
use std::net::IpAddr;

use anyhow::{Context as _, Result, bail, ensure};
use ureq::http::Uri;

use crate::sys;

/// A proxy to use.
#[derive(Debug, Clone, PartialEq)]
pub struct Proxy {
    /// Protocol.
    pub scheme: Scheme,
    /// Name or address, without brackets.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// User and password, decoded.
    pub login: Option<(String, String)>,
}

/// Protocol of a proxy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scheme {
    /// `CONNECT` in the clear.
    Http,
    /// `CONNECT` over TLS.
    Https,
    /// SOCKS version 5; names are resolved by the proxy.
    Socks5,
}

impl Proxy {
    /// Reads `scheme://[user:password@]host[:port]`; without a scheme it is HTTP.
    pub fn parse(text: &str) -> Result<Self> {
        let with_scheme = if text.contains("://") {
            text.to_owned()
        } else {
            format!("http://{text}")
        };
        let uri: Uri = with_scheme
            .parse()
            .with_context(|| format!("`{}` is not a proxy address", hide(text)))?;
        let (scheme, default_port) = match uri.scheme_str() {
            Some("http") => (Scheme::Http, 80),
            Some("https") => (Scheme::Https, 443),
            Some("socks5" | "socks5h") => (Scheme::Socks5, 1080),
            other => {
                let scheme = other.unwrap_or_default();
                bail!("proxy scheme `{scheme}` is not one of http, https, socks5, socks5h");
            }
        };
        let authority = uri
            .authority()
            .map_or("", ureq::http::uri::Authority::as_str);
        let login = authority.rsplit_once('@').map(|(login, _)| {
            let (user, password) = login.split_once(':').unwrap_or((login, ""));
            (decode(user), decode(password))
        });
        let host = uri
            .host()
            .unwrap_or_default()
            .trim_matches(['[', ']'])
            .to_owned();
        ensure!(
            !host.is_empty(),
            "proxy address `{}` has no host",
            hide(text)
        );
        Ok(Self {
            scheme,
            host,
            port: uri.port_u16().unwrap_or(default_port),
            login,
        })
    }

    /// The proxy that the environment sets for a URL.
    pub fn before(url: &Uri) -> Result<Option<Self>> {
        let (host, port) = place(url);
        Self::choose(url.scheme_str() == Some("https"), host, port, |name| {
            // Upper case first, as Go does.
            [name.to_owned(), name.to_lowercase()]
                .iter()
                .find_map(|name| sys::variable(name).map(|value| (name.clone(), value)))
        })
    }

    fn choose(
        tls: bool,
        host: &str,
        port: u16,
        variable: impl Fn(&str) -> Option<(String, String)>,
    ) -> Result<Option<Self>> {
        let Some((name, value)) = variable(if tls { "HTTPS_PROXY" } else { "HTTP_PROXY" }) else {
            return Ok(None);
        };
        let exceptions = variable("NO_PROXY")
            .map(|(_, value)| value)
            .unwrap_or_default();
        if exempt(&exceptions, host, port) {
            return Ok(None);
        }
        Self::parse(&value)
            .map(Some)
            .with_context(|| format!("environment variable {name}"))
    }
}

/// Host and port as in a URL: an IPv6 address needs brackets.
pub fn authority(host: &str, port: impl fmt::Display) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

/// Host, without brackets, and port of a URL.
pub fn place(url: &Uri) -> (&str, u16) {
    let default = if url.scheme_str() == Some("https") {
        443
    } else {
        80
    };
    (
        url.host().unwrap_or_default().trim_matches(['[', ']']),
        url.port_u16().unwrap_or(default),
    )
}

/// Whether to connect to a server directly: loopback addresses, and those that the list names.
fn exempt(list: &str, host: &str, port: u16) -> bool {
    let host = host.trim().trim_end_matches('.').to_lowercase();
    let address: Option<IpAddr> = host.parse().ok();
    if host == "localhost" || address.is_some_and(|address| address.is_loopback()) {
        return true;
    }
    list.split(',')
        .map(|entry| entry.trim().to_lowercase())
        .filter(|entry| !entry.is_empty())
        .any(|entry| {
            if entry == "*" {
                return true;
            }
            if let Some((network, bits)) = entry.split_once('/') {
                return address.is_some_and(|address| within(address, network, bits));
            }
            let (name, wanted) = split_port(&entry);
            if wanted.is_some_and(|wanted| wanted != port) {
                return false;
            }
            let named: Option<IpAddr> = name.parse().ok();
            if named.or(address).is_some() {
                return named == address;
            }
            let name = name
                .strip_prefix('*')
                .filter(|rest| rest.starts_with('.'))
                .unwrap_or(name);
            // `.example.com` means its subdomains, `example.com` also the domain itself.
            match name.strip_prefix('.') {
                Some(parent) => below(&host, parent),
                None => host == name || below(&host, name),
            }
        })
}

fn below(host: &str, parent: &str) -> bool {
    host.strip_suffix(parent)
        .is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
}

fn split_port(entry: &str) -> (&str, Option<u16>) {
    if let Some(rest) = entry.strip_prefix('[') {
        let (name, port) = rest.split_once(']').unwrap_or((rest, ""));
        return (
            name,
            port.strip_prefix(':').and_then(|port| port.parse().ok()),
        );
    }
    match entry.rsplit_once(':') {
        // More than one colon is an IPv6 address without brackets.
        Some((name, port)) if !name.contains(':') => (name, port.parse().ok()),
        _ => (entry, None),
    }
}

fn within(address: IpAddr, network: &str, bits: &str) -> bool {
    let (Ok(network), Ok(bits)) = (network.parse::<IpAddr>(), bits.parse::<u32>()) else {
        return false;
    };
    let (differing, width) = match (address, network) {
        (IpAddr::V4(a), IpAddr::V4(n)) => (u128::from(a.to_bits() ^ n.to_bits()), 32),
        (IpAddr::V6(a), IpAddr::V6(n)) => (a.to_bits() ^ n.to_bits(), 128),
        _ => return false,
    };
    bits <= width && differing.checked_shr(width - bits).unwrap_or(0) == 0
}

/// An address without its password, for messages.
fn hide(text: &str) -> String {
    match text.rsplit_once('@') {
        Some((_, host)) => format!("…@{host}"),
        None => text.to_owned(),
    }
}

fn decode(text: &str) -> String {
    crate::percent_decoded(text).unwrap_or_else(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxy_exceptions_follow_go() {
        for (list, host, direct) in [
            ("", "localhost", true),
            ("", "127.0.0.5", true),
            ("", "::1", true),
            ("", "example.com", false),
            ("*", "example.com", true),
            ("example.com", "example.com", true),
            ("example.com", "a.example.com", true),
            ("example.com", "badexample.com", false),
            (".example.com", "example.com", false),
            (".example.com", "a.b.example.com", true),
            ("*.example.com", "a.example.com", true),
            ("*.example.com", "example.com", false),
            ("Example.COM.", "example.com", false),
            ("example.com", "EXAMPLE.com.", true),
            ("example.com:6443", "example.com", true),
            ("example.com:443", "example.com", false),
            ("10.0.0.0/8", "10.96.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("10.0.0.0/8", "ten.example.com", false),
            ("0.0.0.0/0", "8.8.8.8", true),
            ("10.96.0.1", "10.96.0.1", true),
            ("10.96.0.1:443", "10.96.0.1", false),
            ("fd00::/8", "fd12::1", true),
            ("fd12::1", "fd12::1", true),
            ("[fd12::1]:6443", "fd12::1", true),
            (
                "10.0.0.0/99, nonsense/x ,.svc",
                "kubernetes.default.svc",
                true,
            ),
        ] {
            assert_eq!(exempt(list, host, 6443), direct, "{list:?} for {host}");
        }
    }

    #[test]
    fn addresses_are_read() {
        let check = |text: &str, scheme, host: &str, port, login: Option<(&str, &str)>| {
            let proxy = Proxy::parse(text).unwrap();
            let login = login.map(|(user, password)| (user.to_owned(), password.to_owned()));
            assert_eq!(
                proxy,
                Proxy {
                    scheme,
                    host: host.into(),
                    port,
                    login
                },
                "{text}"
            );
        };
        check("proxy:3128", Scheme::Http, "proxy", 3128, None);
        check("http://proxy", Scheme::Http, "proxy", 80, None);
        check(
            "https://u:p%40x@proxy",
            Scheme::Https,
            "proxy",
            443,
            Some(("u", "p@x")),
        );
        check("socks5://[::1]", Scheme::Socks5, "::1", 1080, None);
        for (text, says) in [
            ("ftp://x", "`ftp` is not one of"),
            ("http://u:secret@", "…@"),
            ("http://a b", "not a proxy"),
        ] {
            let error = format!("{:#}", Proxy::parse(text).unwrap_err());
            assert!(
                error.contains(says) && !error.contains("secret"),
                "{text}: {error}"
            );
        }
    }

    #[test]
    fn proxy_variables_are_specific_to_the_scheme() {
        let environment = |name: &str| {
            [("HTTPS_PROXY", "s:1"), ("NO_PROXY", "direct")]
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        };
        assert_eq!(
            Proxy::choose(true, "x", 443, environment)
                .unwrap()
                .unwrap()
                .host,
            "s"
        );
        assert_eq!(Proxy::choose(false, "x", 80, environment).unwrap(), None);
        assert_eq!(
            Proxy::choose(true, "direct", 443, environment).unwrap(),
            None
        );
    }
}
