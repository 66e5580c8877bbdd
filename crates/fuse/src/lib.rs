//! A volume as a FUSE file, and a loop device over it
