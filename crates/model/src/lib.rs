//! Timing models of SSDs and hard disks, pure
