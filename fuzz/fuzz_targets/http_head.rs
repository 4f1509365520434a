//! See [`nephila_fuzz::http_head`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nephila_fuzz::http_head(data));
