//! The volume: map, space, journal, recovery, background work
