//! Configuration, life of the daemon, admin socket, status types
