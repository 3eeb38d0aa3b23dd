//! The certificate authority of one run: creates itself, the aggregator's certificate and those of
//! workers, and seals the archive.
//!
//! All keys are ECDSA P-256. Subjects are distinct and key identifiers are included, so that
//! OpenSSL builds the chain, too; it rejects leaves whose subject equals their issuer's.

use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, ensure};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, SanType, SerialNumber,
    SigningKey as _,
};
use ring::rand::{RandomlyConstructable, SystemRandom};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};

use super::seal::{Seal, Statement, public_key, run_of_key};
use super::{Identity, PLUGIN_URI, SigningRequest, der, result_uri};
use base::tls::pem;
use base::{hex, sha256};
use client::protocol::ResultId;

/// Back-dating of certificates, since clocks of nodes may be behind the aggregator's.
const BACK_DATED: Duration = Duration::from_secs(24 * 3600);
/// Validity of certificates beyond the run's time limit, for startup, retries after the end, and
/// clocks that are ahead.
const VALIDITY_MARGIN: Duration = Duration::from_secs(48 * 3600);
/// Maximum validity, above that of any run; keeps dates within the range of certificates.
const MAX_VALIDITY: Duration = Duration::from_secs(100 * 366 * 24 * 3600);

/// The certificate authority of one run. Only [`Authority::to_pem`] exports its key.
pub struct Authority {
    certificate: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
    not_after: Duration,
}

impl Authority {
    /// A new authority for a run of at most `valid`.
    pub fn new(valid: Duration) -> anyhow::Result<Self> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)
            .context("cannot create the authority's key")?;
        let not_after = since_1970() + valid.min(MAX_VALIDITY) + VALIDITY_MARGIN;
        let mut params = authority_params(&key);
        params.serial_number = Some(serial()?);
        set_validity(&mut params, not_after);
        let certificate = params
            .self_signed(&key)
            .context("cannot sign the authority's certificate")?;
        Ok(Self {
            certificate: certificate.der().clone(),
            issuer: Issuer::new(params, key),
            not_after,
        })
    }

    /// Reads the output of [`Authority::to_pem`], so that workers still trust a restarted
    /// aggregator.
    pub fn from_pem(text: &str) -> anyhow::Result<Self> {
        let certificate = CertificateDer::from_pem_slice(text.as_bytes())
            .context("cannot read the authority's certificate")?;
        let key = PrivatePkcs8KeyDer::from_pem_slice(text.as_bytes())
            .context("cannot read the authority's key")?;
        let key = KeyPair::from_pkcs8_der_and_sign_algo(&key, &PKCS_ECDSA_P256_SHA256)
            .context("cannot use the authority's key")?;
        ensure!(
            public_key(text)? == key.public_key_raw(),
            "the authority's certificate and key do not match"
        );
        let issuer = Issuer::new(authority_params(&key), key);
        let not_after = not_after(&certificate)
            .context("cannot find the end of the authority's certificate")?;
        Ok(Self {
            certificate,
            issuer,
            not_after,
        })
    }

    /// Certificate and private key, for a file that only its owner can read.
    pub fn to_pem(&self) -> String {
        self.certificate_pem() + &pem("PRIVATE KEY", self.issuer.key().serialized_der())
    }

    /// The certificate, which workers receive as `CA_CERT`.
    pub fn certificate_pem(&self) -> String {
        pem("CERTIFICATE", &self.certificate)
    }

    /// The identifier of a run that is derived from this authority's key.
    pub fn run(&self) -> String {
        run_of_key(self.issuer.key().public_key_raw())
    }

    /// Seals an archive.
    pub fn seal(&self, statement: &Statement) -> anyhow::Result<Seal> {
        let statement = statement.to_text().into_bytes();
        let signature = self
            .issuer
            .key()
            .sign(&statement)
            .context("cannot sign the archive")?;
        Ok(Seal {
            statement,
            signature,
        })
    }

    /// A certificate for the server at the advertised `host`: an IP address or a name, either with
    /// or without a port.
    pub fn server(&self, host: &str) -> anyhow::Result<Identity> {
        self.server_at(&[host])
    }

    /// A certificate for the server at any of the advertised `hosts`.
    pub fn server_at(&self, hosts: &[impl AsRef<str>]) -> anyhow::Result<Identity> {
        let names = hosts.iter().map(|host| host_of(host.as_ref()));
        let names = names.collect::<anyhow::Result<Vec<_>>>()?;
        let usage = ExtendedKeyUsagePurpose::ServerAuth;
        let params = self.params("aggregator", usage, names)?;
        self.sign(&params)
            .context("cannot create the server's certificate")
    }

    /// A certificate for all workers of `plugin`.
    pub fn client(&self, plugin: &str) -> anyhow::Result<Identity> {
        ensure!(
            !plugin.is_empty(),
            "a plugin without a name cannot have a certificate"
        );
        let uri = format!("{}{}", PLUGIN_URI, base::percent_encoded(plugin));
        let mut names = vec![SanType::URI(uri.try_into()?)];
        if is_dns_name(plugin) {
            let name = plugin.try_into()?;
            names.insert(0, SanType::DnsName(name));
        }
        let params = self.params("plugin", ExtendedKeyUsagePurpose::ClientAuth, names)?;
        self.sign(&params)
            .with_context(|| format!("cannot create the certificate of plugin `{plugin}`"))
    }

    /// A certificate, PEM, for the holder of the key of `request`, which identifies the sender of
    /// the result `id`. It expires after `valid`, and never later than the others of the run.
    pub fn certify(
        &self,
        id: &ResultId,
        request: &SigningRequest,
        valid: Duration,
    ) -> anyhow::Result<String> {
        let names = vec![SanType::URI(result_uri(id).try_into()?)];
        let usage = ExtendedKeyUsagePurpose::ClientAuth;
        let mut params = self.params("worker", usage, names)?;
        set_validity(&mut params, self.not_after.min(since_1970() + valid));
        let certificate = params
            .signed_by(request, &self.issuer)
            .context("cannot sign the certificate")?;
        Ok(pem("CERTIFICATE", certificate.der()))
    }

    /// A certificate of the holder with the alternative `names`, which identify it; its subject
    /// only has to be unique.
    fn params(
        &self,
        role: &str,
        usage: ExtendedKeyUsagePurpose,
        names: Vec<SanType>,
    ) -> anyhow::Result<CertificateParams> {
        let mut params = CertificateParams::default();
        let serial = serial()?;
        params.distinguished_name = subject(&format!("{role} {}", hex(serial.to_bytes())));
        params.serial_number = Some(serial);
        params.extended_key_usages = vec![usage];
        params.subject_alt_names = names;
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        set_validity(&mut params, self.not_after);
        Ok(params)
    }

    fn sign(&self, params: &CertificateParams) -> anyhow::Result<Identity> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        let sec1 = sec1(&key).context("cannot write the key as SEC1")?;
        Ok(Identity {
            cert_pem: pem("CERTIFICATE", certificate.der()),
            key_pem: pem("EC PRIVATE KEY", &sec1),
        })
    }
}

/// The part of the authority's certificate that follows from its key, which is sufficient for
/// signing.
fn authority_params(key: &KeyPair) -> CertificateParams {
    let digest = sha256(key.public_key_raw());
    let mut params = CertificateParams::default();
    params.distinguished_name = subject(&format!("run authority {}", hex(&digest.as_ref()[..8])));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    params
}

fn subject(common_name: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::OrganizationName, "Sonobuoy");
    name.push(DnType::CommonName, common_name);
    name
}

/// The host of an advertised address, without its port. Old releases wrote `[1.2.3.4]:8080`.
fn host_of(advertised: &str) -> anyhow::Result<SanType> {
    let text = advertised.trim();
    let (host, port) = match text
        .strip_prefix('[')
        .and_then(|inner| inner.split_once(']'))
    {
        Some((host, rest)) => (host, rest.strip_prefix(':').unwrap_or(rest)),
        // More than one colon without brackets is a bare IPv6 address.
        None if text.matches(':').count() == 1 => text.split_once(':').unwrap_or_default(),
        None => (text, ""),
    };
    let is_port = port.bytes().all(|byte| byte.is_ascii_digit());
    ensure!(
        is_port,
        "the advertised address `{advertised}` has no valid port"
    );
    let without_zone = host.split('%').next().unwrap_or_default();
    if let Ok(ip) = without_zone.parse::<IpAddr>() {
        return Ok(SanType::IpAddress(ip));
    }
    let name = host.strip_suffix('.').unwrap_or(host);
    ensure!(
        is_dns_name(name),
        "the advertised address `{advertised}` is neither an IP address nor a host name"
    );
    Ok(SanType::DnsName(name.try_into()?))
}

/// Whether a name is a valid DNS name: labels of letters, digits, `-` and `_`. Strict parsers
/// reject the whole certificate for any other.
fn is_dns_name(name: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    name.len() <= 253 && name.split('.').all(label)
}

/// 16 random bytes, positive and without leading zeros.
fn serial() -> anyhow::Result<SerialNumber> {
    let mut bytes: [u8; 16] = random()?;
    bytes[0] = bytes[0] & 0x7f | 0x40;
    Ok(SerialNumber::from_slice(&bytes))
}

/// Random bytes.
pub fn random<T: RandomlyConstructable>() -> anyhow::Result<T> {
    let bytes = ring::rand::generate(&SystemRandom::new()).ok();
    Ok(bytes
        .context("the system provides no random bytes")?
        .expose())
}

/// The key as RFC 5915 defines it, including the curve's name, which SEC1 parsers need.
fn sec1(key: &KeyPair) -> Option<Vec<u8>> {
    const HEAD: [u8; 7] = [
        der::SEQUENCE,
        0x77,
        der::INTEGER,
        1,
        1,
        der::OCTET_STRING,
        32,
    ];
    const CURVE: [u8; 12] = [0xa0, 10, 6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7];
    const PUBLIC: [u8; 5] = [0xa1, 0x44, 3, 0x42, 0];
    let mut pkcs8 = der::expect(&mut key.serialized_der(), der::SEQUENCE)?;
    let _version = der::expect(&mut pkcs8, der::INTEGER)?;
    let _algorithm = der::expect(&mut pkcs8, der::SEQUENCE)?;
    let mut inner = der::expect(
        &mut der::expect(&mut pkcs8, der::OCTET_STRING)?,
        der::SEQUENCE,
    )?;
    let _version = der::expect(&mut inner, der::INTEGER)?;
    let secret = der::expect(&mut inner, der::OCTET_STRING).filter(|secret| secret.len() == 32)?;
    let public = Some(key.public_key_raw()).filter(|public| public.len() == 65)?;
    Some([&HEAD[..], secret, &CURVE, &PUBLIC, public].concat())
}

/// The end of a certificate's validity, since 1970.
pub fn not_after(certificate: &CertificateDer<'_>) -> Option<Duration> {
    let outer = der::expect(&mut certificate.as_ref(), der::SEQUENCE)?;
    let mut fields = der::expect(&mut &*outer, der::SEQUENCE)?;
    // Version, serial number, algorithm, issuer; then the validity.
    for _ in 0..4 {
        der::next(&mut fields)?;
    }
    let mut validity = der::expect(&mut fields, der::SEQUENCE)?;
    der::next(&mut validity)?;
    let (tag, digits) = der::next(&mut validity)?;
    let digits = std::str::from_utf8(digits)
        .ok()
        .filter(|digits| digits.is_ascii())?;
    // UTCTime, used until 2049, has two digits for the year.
    let digits = if tag == 0x17 {
        format!("20{digits}")
    } else {
        digits.into()
    };
    let mut text = format!("{}Z", digits.get(..14)?);
    for (at, separator) in [(12, ':'), (10, ':'), (8, 'T'), (6, '-'), (4, '-')] {
        text.insert(at, separator);
    }
    base::clock::parse_rfc3339(&text)?
        .duration_since(UNIX_EPOCH)
        .ok()
}

fn since_1970() -> Duration {
    // A clock before 1970 is clearly wrong; the arithmetic needs a day for back-dating.
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .max(BACK_DATED)
}

/// Makes a certificate valid from a day ago until `not_after`, in whole seconds since 1970.
fn set_validity(params: &mut CertificateParams, not_after: Duration) {
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch + Duration::from_secs((since_1970() - BACK_DATED).as_secs());
    params.not_after = epoch + Duration::from_secs(not_after.as_secs());
}
