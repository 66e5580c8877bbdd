//! NBD: wire codec and server
