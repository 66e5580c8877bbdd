#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (braid_fuzz::target("nbd_server_handshake").run)(bytes));
