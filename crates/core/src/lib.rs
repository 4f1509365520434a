//! All decisions of the crawler, without input or output.
