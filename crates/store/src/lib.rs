//! What a crawl durably knows: journal, sieve and queues.
