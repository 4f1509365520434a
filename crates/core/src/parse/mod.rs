//! What fetched bytes say: kind of content, links, directives, sitemaps, and the headers that matter.
