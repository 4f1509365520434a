//! See [`nephila_fuzz::warc`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nephila_fuzz::warc(data));
