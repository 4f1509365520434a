//! See [`nephila_fuzz::url`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nephila_fuzz::url(data));
