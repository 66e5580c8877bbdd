#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (braid_fuzz::target("ublk_request").run)(bytes));
