//! Authorities and certificates, right and wrong, in the folders and files that clients expect.
#![allow(dead_code, reason = "each test binary uses its part")]

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, ExtendedKeyUsagePurpose,
    IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SerialNumber, date_time_ymd,
};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// An authority of a test.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub pem: String,
}

/// A certificate and its key, in PEM.
pub struct Identity {
    pub certificate: String,
    pub key: String,
    serial: SerialNumber,
}

/// A certificate to make.
pub struct Wanted<'a> {
    pub common_name: &'a str,
    pub names: &'a [&'a str],
    pub usage: ExtendedKeyUsagePurpose,
    /// Years: from the start of the first to the start of the second.
    pub years: (i32, i32),
}

impl Wanted<'_> {
    pub fn server() -> Wanted<'static> {
        let (names, usage) = (&["localhost", "127.0.0.1"][..], ExtendedKeyUsagePurpose::ServerAuth);
        Wanted { common_name: "server", names, usage, years: (2020, 2200) }
    }

    pub fn client(common_name: &str) -> Wanted<'_> {
        let usage = ExtendedKeyUsagePurpose::ClientAuth;
        Wanted { common_name, names: &[], usage, years: (2020, 2200) }
    }
}

impl Authority {
    pub fn new() -> Authority {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "authority of a test");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let pem = params.self_signed(&key).expect("a certificate").pem();
        Authority { issuer: Issuer::new(params, key), pem }
    }

    pub fn sign(&self, wanted: &Wanted<'_>) -> Identity {
        let names: Vec<String> = wanted.names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names");
        params.distinguished_name.push(DnType::CommonName, wanted.common_name);
        params.extended_key_usages = vec![wanted.usage.clone()];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let (first, last) = wanted.years;
        (params.not_before, params.not_after) = (date_time_ymd(first, 1, 1), date_time_ymd(last, 1, 1));
        let key = KeyPair::generate().expect("a key");
        let serial = SerialNumber::from_slice(&key.public_key_raw()[1..17]);
        params.serial_number = Some(serial.clone());
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate").pem();
        Identity { certificate, key: key.serialize_pem(), serial }
    }

    /// The list of revoked certificates, in PEM.
    pub fn revoke(&self, identity: &Identity) -> String {
        let revoked = RevokedCertParams {
            serial_number: identity.serial.clone(),
            revocation_time: date_time_ymd(2021, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let params = CertificateRevocationListParams {
            this_update: date_time_ymd(2021, 1, 1),
            next_update: date_time_ymd(2200, 1, 1),
            crl_number: SerialNumber::from(1u64),
            issuing_distribution_point: None,
            revoked_certs: vec![revoked],
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&self.issuer).expect("a list").pem().expect("PEM")
    }

    /// Writes a folder as libnbd and qemu expect: for a `client`, or a `server`.
    pub fn write(&self, folder: &Path, role: &str, identity: &Identity) {
        fs::create_dir_all(folder).expect("a folder");
        fs::write(folder.join("ca-cert.pem"), &self.pem).expect("room");
        fs::write(folder.join(format!("{role}-cert.pem")), &identity.certificate).expect("room");
        let key = folder.join(format!("{role}-key.pem"));
        fs::write(&key, &identity.key).expect("room");
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("own file");
    }
}
