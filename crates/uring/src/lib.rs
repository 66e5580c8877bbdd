//! The real world: io_uring reactor, devices, sockets
