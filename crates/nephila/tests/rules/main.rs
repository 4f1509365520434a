//! The rules of the project that the compiler does not know: who may depend on whom, and what the sources look like.
//!
//! Every checker takes text and returns what is wrong with it, so that it can be shown to fail on a sample.

mod layers;
mod sources;
mod tidy;
