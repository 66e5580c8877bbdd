//! On-disk structures: superblock, journal batch, map page
