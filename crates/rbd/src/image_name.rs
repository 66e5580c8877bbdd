//! Address of an image: `rbd:POOL/IMAGE` or `rbd:POOL/NAMESPACE/IMAGE`.

use std::fmt;
use std::str::FromStr;

/// Name of an image in a cluster, by pool, namespace and image. Written as the `rbd` tool writes an image,
/// with `rbd:` in front.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ImageName {
    pool: String,
    /// Empty for the pool's default namespace.
    namespace: String,
    image: String,
}

impl ImageName {
    /// True if the text is an address of an image, not a path; the address may still be malformed.
    pub fn is_image_name(text: &str) -> bool {
        text.starts_with(SCHEME)
    }

    /// Name of the pool.
    pub fn pool(&self) -> &str {
        &self.pool
    }

    /// Namespace within the pool; empty for the default namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Name of the image within pool and namespace.
    pub fn image(&self) -> &str {
        &self.image
    }

    /// Image of a pool that the cluster has named.
    pub(crate) fn of(pool: &PoolName, image: &str) -> Result<ImageName, String> {
        check_part("image", image)?;
        let PoolName { pool, namespace } = pool.clone();
        Ok(ImageName { pool, namespace, image: image.to_owned() })
    }

    /// Pool and namespace of the image.
    pub(crate) fn place(&self) -> PoolName {
        PoolName { pool: self.pool.clone(), namespace: self.namespace.clone() }
    }
}

impl FromStr for ImageName {
    type Err = String;

    /// The error names the remedy.
    fn from_str(text: &str) -> Result<ImageName, String> {
        let parts: Vec<&str> =
            text.strip_prefix(SCHEME).map(|rest| rest.split('/').collect()).unwrap_or_default();
        let (pool, namespace, image) = match parts[..] {
            [pool, image] => (pool, "", image),
            [pool, namespace, image] => (pool, namespace, image),
            _ => {
                return Err(format!(
                    "{text} names no image: write rbd:POOL/IMAGE or rbd:POOL/NAMESPACE/IMAGE"
                ));
            }
        };
        check_part("pool", pool)?;
        if parts.len() == 3 {
            check_part("namespace", namespace)?;
        }
        check_part("image", image)?;
        let (pool, namespace) = (pool.to_owned(), namespace.to_owned());
        Ok(ImageName { pool, namespace, image: image.to_owned() })
    }
}

impl fmt::Display for ImageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/{}", self.place(), self.image)
    }
}

/// A pool, and a namespace of the pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PoolName {
    pub(crate) pool: String,
    /// Empty for the default namespace.
    pub(crate) namespace: String,
}

impl FromStr for PoolName {
    type Err = String;

    /// Reads `POOL` or `POOL/NAMESPACE`, with or without `rbd:` in front.
    fn from_str(text: &str) -> Result<PoolName, String> {
        let rest = text.strip_prefix(SCHEME).unwrap_or(text);
        let (pool, namespace) = rest.split_once('/').unwrap_or((rest, ""));
        check_part("pool", pool)?;
        if rest.contains('/') {
            check_part("namespace", namespace)?;
        }
        Ok(PoolName { pool: pool.to_owned(), namespace: namespace.to_owned() })
    }
}

impl fmt::Display for PoolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace.as_str() {
            "" => f.write_str(&self.pool),
            namespace => write!(f, "{}/{namespace}", self.pool),
        }
    }
}

/// Refuses a part that Ceph's tools could not name, a name of a snapshot among the parts.
fn check_part(what: &str, part: &str) -> Result<(), String> {
    let problem = match part {
        "" => "is empty".to_owned(),
        _ if part.len() > LONGEST_PART => format!("has {} bytes: at most {LONGEST_PART}", part.len()),
        _ if part.contains('@') => "names a snapshot: a device is an image, without @SNAPSHOT".to_owned(),
        _ if part.contains('/') || part.chars().any(char::is_control) => {
            "has characters that Ceph refuses".to_owned()
        }
        _ => return Ok(()),
    };
    Err(format!("the {what} '{}' {problem}: write rbd:POOL/IMAGE", part.escape_debug()))
}

/// In front of each address.
const SCHEME: &str = "rbd:";
/// Longest name in bytes: librbd's own limit for an image (`RBD_MAX_IMAGE_NAME_SIZE`, with its zero byte).
const LONGEST_PART: usize = 95;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_read_and_written_alike() {
        for text in ["rbd:pool/image", "rbd:pool/namespace/image", "rbd:a.b/c d"] {
            assert!(ImageName::is_image_name(text));
            assert_eq!(text.parse::<ImageName>().map(|name| name.to_string()), Ok(text.to_owned()));
        }
        let name: ImageName = "rbd:p/n/i".parse().unwrap();
        assert_eq!((name.pool(), name.namespace(), name.image()), ("p", "n", "i"));
    }

    #[test]
    fn malformed_address_is_refused() {
        let long = format!("rbd:pool/{}", "x".repeat(96));
        for text in [
            "",
            "rbd:",
            "rbd:pool",
            "rbd:/image",
            "rbd:pool/",
            "rbd:a/b/c/d",
            "rbd:p//i",
            "rbd:p/i@s",
            "rbd:p/\0",
            &long,
        ] {
            assert!(text.parse::<ImageName>().is_err(), "{text}");
        }
        assert!(ImageName::is_image_name("rbd:pool") && !ImageName::is_image_name("/dev/rbd0"));
    }

    #[test]
    fn pool_is_read_with_and_without_scheme() {
        for text in ["pool", "rbd:pool"] {
            assert_eq!(text.parse::<PoolName>().map(|name| name.to_string()), Ok("pool".to_owned()));
        }
        assert_eq!("pool/space".parse::<PoolName>().map(|name| name.namespace), Ok("space".to_owned()));
        assert!("pool/".parse::<PoolName>().is_err() && "".parse::<PoolName>().is_err());
    }
}
