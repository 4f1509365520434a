//! An agent as a library: it performs what the core decides.
