//! The one door to the file system, and a version of it that fails.
