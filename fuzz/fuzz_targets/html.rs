//! See [`nephila_fuzz::html`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nephila_fuzz::html(data));
