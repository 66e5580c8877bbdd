//! Which of the blocks that a cache lacks enter it: `admit=all`, at once; `admit=larc` ([`super::larc`]), at
//! the second miss; or `admit=sievestore` ([`super::sieve_store`]), after many misses.
//!
//! A filter trades hits for writes to the SSD: a block that is asked for once is written once for nothing.

use super::larc::Larc;
use super::sieve_store::SieveStore;
use super::written;
use crate::{BadSetting, Piece, Settings, View};

/// What keeps blocks out of a cache.
pub enum Filter {
    /// Nothing.
    All,
    Larc(Larc),
    SieveStore(Box<SieveStore>),
}

impl Filter {
    /// Setting: `admit` (all; larc or sievestore), and with sievestore those of [`SieveStore`].
    pub fn take(settings: &mut Settings) -> Result<Filter, BadSetting> {
        match settings.take_text("admit").as_deref() {
            None | Some("all") => Ok(Filter::All),
            Some("larc") => Ok(Filter::Larc(Larc::new())),
            Some("sievestore") => Ok(Filter::SieveStore(Box::new(SieveStore::take(settings)?))),
            Some(other) => Err(settings.bad("admit", other, "all, larc or sievestore")),
        }
    }

    /// The settings as text, if they are not the default.
    pub fn settings(&self) -> Vec<String> {
        match self {
            Filter::All => Vec::new(),
            Filter::Larc(_) => vec!["admit=larc".to_owned()],
            Filter::SieveStore(sieve) => {
                let mut all = vec!["admit=sievestore".to_owned()];
                all.extend(written(sieve.settings()));
                all
            }
        }
    }

    /// A guest asked for a piece: whether its blocks that are not cached enter a cache of so many blocks. To
    /// be asked once of each piece whose blocks may enter or are there, in the order in which they come.
    pub fn lets_in(&mut self, piece: &Piece, blocks: u64, view: &View) -> bool {
        let touched = || piece.touched().map(|block| (block, view.homes.extra(block).is_some()));
        match self {
            Filter::All => true,
            Filter::Larc(larc) => larc.asked(touched(), blocks as f64),
            Filter::SieveStore(sieve) => sieve.asked(touched(), blocks, view.now),
        }
    }

    /// Bytes of memory that it takes.
    pub fn memory(&self) -> usize {
        match self {
            Filter::All => 0,
            Filter::Larc(larc) => larc.memory(),
            Filter::SieveStore(sieve) => sieve.memory(),
        }
    }
}
