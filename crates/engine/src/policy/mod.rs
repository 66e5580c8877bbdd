//! What the active policy sees of the volume, and the state learned at earlier openings.

mod places;
mod state;

pub(crate) use places::Places;
pub(crate) use state::PolicyStates;
