//! Names in the certificates of clients, and the exports that a name may use.

use crate::handshake::Access;
use std::fmt;
use std::str::FromStr;
use x509_parser::extensions::GeneralName;
use x509_parser::parse_x509_certificate;

/// Permission of a client: `NAME=EXPORT`, or `NAME=EXPORT:ro` for reading alone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientRule {
    /// Name in the client's certificate: the common name of its subject, or a DNS name.
    pub client: String,
    /// Name of the export.
    pub export: String,
    /// Rights of the client.
    pub access: Access,
}

impl FromStr for ClientRule {
    type Err = String;

    fn from_str(text: &str) -> Result<ClientRule, String> {
        // A common name may contain any mark, the name of an export neither `=` nor `:`.
        let (client, export) = text.rsplit_once('=').unwrap_or((text, ""));
        let (export, access) = match export.strip_suffix(":ro") {
            Some(export) => (export, Access::ReadOnly),
            None => (export, Access::ReadWrite),
        };
        if client.is_empty() || export.is_empty() || export.contains(':') {
            return Err(format!("'{text}': use NAME=EXPORT, or NAME=EXPORT:ro for reading alone"));
        }
        Ok(ClientRule { client: client.to_owned(), export: export.to_owned(), access })
    }
}

impl fmt::Display for ClientRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let suffix = if self.access == Access::ReadOnly { ":ro" } else { "" };
        write!(f, "{}={}{suffix}", self.client, self.export)
    }
}

/// Rights at `export` of a client with these names: all rights if there are no rules. If several rules fit,
/// each must allow changes. `None` if no rule fits.
pub fn access(rules: &[ClientRule], export: &str, names: &[String]) -> Option<Access> {
    if rules.is_empty() {
        return Some(Access::ReadWrite);
    }
    let fits = |rule: &&ClientRule| rule.export == export && names.contains(&rule.client);
    let fitting: Vec<Access> = rules.iter().filter(fits).map(|rule| rule.access).collect();
    match fitting.contains(&Access::ReadOnly) {
        true => Some(Access::ReadOnly),
        false => fitting.first().copied(),
    }
}

/// Names in a certificate: common names of the subject, then DNS names. Empty if the certificate has none, or
/// is malformed.
pub fn names_in(certificate: &[u8]) -> Vec<String> {
    let Ok((_, certificate)) = parse_x509_certificate(certificate) else { return Vec::new() };
    let common = certificate.subject().iter_common_name().filter_map(|name| name.as_str().ok());
    let mut names: Vec<String> = common.map(str::to_owned).collect();
    if let Ok(Some(alternatives)) = certificate.subject_alternative_name() {
        for name in &alternatives.value.general_names {
            if let GeneralName::DNSName(name) = name
                && !names.iter().any(|known| known == name)
            {
                names.push((*name).to_owned());
            }
        }
    }
    names
}

/// End of a certificate's validity in seconds since 1970. `None` if the certificate is malformed.
pub fn expiry_of(certificate: &[u8]) -> Option<i64> {
    let (_, certificate) = parse_x509_certificate(certificate).ok()?;
    Some(certificate.validity().not_after.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(texts: &[&str]) -> Vec<ClientRule> {
        texts.iter().map(|text| text.parse().expect("a rule")).collect()
    }

    #[test]
    fn rule_is_parsed_as_printed() {
        for text in ["backup=vault", "backup=vault:ro", "O=Acme, CN=a b=vault:ro"] {
            assert_eq!(rules(&[text])[0].to_string(), text);
        }
        for wrong in
            ["", "backup", "=vault", "backup=", "backup=:ro", "backup=vault:rw", "backup=vault:ro:ro"]
        {
            let error = wrong.parse::<ClientRule>().unwrap_err();
            assert!(error.contains("NAME=EXPORT:ro"), "{wrong}: {error}");
        }
    }

    #[test]
    fn narrowest_fitting_rule_decides() {
        let names = ["host".to_owned(), "host.example.org".to_owned()];
        let of = |texts: &[&str]| access(&rules(texts), "vault", &names);
        assert_eq!(of(&[]), Some(Access::ReadWrite));
        assert_eq!(of(&["host=vault"]), Some(Access::ReadWrite));
        assert_eq!(of(&["host.example.org=vault:ro"]), Some(Access::ReadOnly));
        assert_eq!(of(&["host=vault", "host.example.org=vault:ro"]), Some(Access::ReadOnly));
        for others in ["host=pool", "hos=vault", "HOST=vault", "host.example=vault", "example.org=vault"] {
            assert_eq!(of(&[others]), None, "{others}");
        }
        assert_eq!(access(&rules(&["host=vault"]), "vault", &[]), None);
    }

    #[test]
    fn malformed_certificate_has_no_names() {
        for bytes in [&b""[..], b"\x30\x03\x02\x01\x01", &[0xff; 300]] {
            assert_eq!((names_in(bytes), expiry_of(bytes)), (Vec::new(), None));
        }
    }
}
