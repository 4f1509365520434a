//! The nephila command line.
fn main() {}
