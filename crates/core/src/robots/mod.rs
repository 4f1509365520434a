//! What sites ask of crawlers: robots.txt, meta robots and `X-Robots-Tag`.

mod directives;

pub use directives::Directives;
