//! The policy of a new volume.

use crate::{Error, ErrorKind, Result};
use braid_format::superblock::LONGEST_POLICY;

/// Returns the text of a policy for the superblock. Fails if the text is too long, or if the policy needs
/// more copies than the volume has.
pub(crate) fn checked_policy(policy: &dyn braid_policy::Policy, copies: u8) -> Result<String> {
    let (text, needs) = (braid_policy::written(policy), policy.copies());
    if needs > copies {
        let problem = format!(
            "policy {} needs {needs} required copies of everything, and the volume has {copies}: create it with --copies {needs}, or use \
             another policy",
            policy.name()
        );
        return Err(Error::new(ErrorKind::Invalid, problem));
    }
    if text.len() > LONGEST_POLICY {
        let problem =
            format!("the policy's settings have {} characters: at most {LONGEST_POLICY}", text.len());
        return Err(Error::new(ErrorKind::Invalid, problem));
    }
    Ok(text)
}
