//! Filter: which missing blocks enter a cache. `admit=all`: at once; `admit=larc` ([`super::larc`]): at the
//! second miss; `admit=sievestore` ([`super::sieve_store`]): after many misses.
//!
//! A filter trades hits for writes to the SSD: a block requested only once costs a useless write.

use super::larc::Larc;
use super::sieve_store::SieveStore;
use super::written;
use crate::{BadSetting, Piece, Settings, View};

/// Filter of a cache.
pub enum Filter {
    /// Admits every block.
    All,
    Larc(Larc),
    SieveStore(Box<SieveStore>),
}

impl Filter {
    /// Reads the setting `admit` (all; larc or sievestore), and with sievestore the settings of
    /// [`SieveStore`]. Fails for other values.
    pub fn take(settings: &mut Settings) -> Result<Filter, BadSetting> {
        match settings.take_text("admit").as_deref() {
            None | Some("all") => Ok(Filter::All),
            Some("larc") => Ok(Filter::Larc(Larc::new())),
            Some("sievestore") => Ok(Filter::SieveStore(Box::new(SieveStore::take(settings)?))),
            Some(other) => Err(settings.bad("admit", other, "all, larc or sievestore")),
        }
    }

    /// Returns the settings as text, without defaults.
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

    /// Records a guest's request for a piece. True if the missing blocks of the piece enter a cache of
    /// `blocks` blocks. Called once for each piece with blocks that are cached or may enter, in order of
    /// arrival.
    pub fn lets_in(&mut self, piece: &Piece, blocks: u64, view: &View) -> bool {
        let touched = || piece.touched().map(|block| (block, view.homes.extra(block).is_some()));
        match self {
            Filter::All => true,
            Filter::Larc(larc) => larc.asked(touched(), blocks as f64),
            Filter::SieveStore(sieve) => sieve.asked(touched(), blocks, view.now),
        }
    }

    /// Bytes of memory used.
    pub fn memory(&self) -> usize {
        match self {
            Filter::All => 0,
            Filter::Larc(larc) => larc.memory(),
            Filter::SieveStore(sieve) => sieve.memory(),
        }
    }
}
