//! WARC in and out, and its CDXJ index.
