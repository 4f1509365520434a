//! See [`nephila_fuzz::sitemap`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nephila_fuzz::sitemap(data));
