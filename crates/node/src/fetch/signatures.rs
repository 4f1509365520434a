//! Signatures on certificates are verified once.
//!
//! Most servers of the web have certificates from a few dozen intermediate authorities, and a server shows the same ones at
//! every connection. Whether a signature on a certificate is good follows from nothing but its bytes, so that it was found
//! good is remembered, by a SHA-256 of all of them. All else (names, dates, what an authority may sign, who is trusted) is
//! looked at every time, and so is the signature that a server makes for the connection: that one is never the same.

use std::collections::HashSet;
use std::sync::{LazyLock, Mutex, PoisonError};

use rustls::crypto::ring::{cipher_suite::TLS13_AES_128_GCM_SHA256, default_provider};
use rustls::crypto::{CryptoProvider, hash::Hash};
use rustls::pki_types::{AlgorithmIdentifier, InvalidSignature, SignatureVerificationAlgorithm};

/// How many each algorithm remembers. When there are more, all are forgotten: each costs one verification more.
const SIGNATURES_MAX: usize = 10_000;

/// rustls wants algorithms that live for ever; what they remember is true for ever.
static ALGORITHMS: LazyLock<Vec<Remembering>> = LazyLock::new(|| {
    let algorithms = default_provider().signature_verification_algorithms.all;
    algorithms.iter().map(|algorithm| Remembering { algorithm: *algorithm, good: Mutex::default() }).collect()
});
static LIST: LazyLock<Vec<&'static dyn SignatureVerificationAlgorithm>> =
    LazyLock::new(|| ALGORITHMS.iter().map(|algorithm| algorithm as _).collect());

/// The usual cryptography, with a memory for signatures on certificates.
pub(super) fn provider() -> CryptoProvider {
    let mut provider = default_provider();
    // Only that of chains: `mapping` is for what servers sign during a handshake.
    provider.signature_verification_algorithms.all = &LIST;
    provider
}

/// An algorithm that remembers which signatures it found good.
#[derive(Debug)]
struct Remembering {
    algorithm: &'static dyn SignatureVerificationAlgorithm,
    good: Mutex<HashSet<[u8; 32]>>,
}

impl SignatureVerificationAlgorithm for Remembering {
    fn verify_signature(
        &self,
        public_key: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), InvalidSignature> {
        let digest = digest([public_key, message, signature]);
        let good = || self.good.lock().unwrap_or_else(PoisonError::into_inner);
        if digest.is_some_and(|digest| good().contains(&digest)) {
            return Ok(());
        }
        self.algorithm.verify_signature(public_key, message, signature)?;
        let mut good = good();
        if good.len() >= SIGNATURES_MAX {
            good.clear();
        }
        good.extend(digest);
        Ok(())
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        self.algorithm.public_key_alg_id()
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        self.algorithm.signature_alg_id()
    }
}

/// A SHA-256 of texts, each with its length before it. None if there is no such thing, and then nothing is remembered.
fn digest(texts: [&[u8]; 3]) -> Option<[u8; 32]> {
    let sha256: &dyn Hash = TLS13_AES_128_GCM_SHA256.tls13()?.common.hash_provider;
    let mut context = sha256.start();
    for text in texts {
        context.update(&(text.len() as u64).to_be_bytes());
        context.update(text);
    }
    context.finish().as_ref().try_into().ok()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Finds everything good that ends as the message does, and counts how often it was asked.
    #[derive(Debug)]
    struct Counting(AtomicUsize);

    impl SignatureVerificationAlgorithm for Counting {
        fn verify_signature(
            &self,
            _: &[u8],
            message: &[u8],
            signature: &[u8],
        ) -> Result<(), InvalidSignature> {
            self.0.fetch_add(1, Ordering::SeqCst);
            if message.ends_with(signature) { Ok(()) } else { Err(InvalidSignature) }
        }

        fn public_key_alg_id(&self) -> AlgorithmIdentifier {
            AlgorithmIdentifier::from_slice(b"key")
        }

        fn signature_alg_id(&self) -> AlgorithmIdentifier {
            AlgorithmIdentifier::from_slice(b"signature")
        }
    }

    #[test]
    fn what_was_good_stays_good_and_nothing_else_becomes_it() {
        static COUNTING: Counting = Counting(AtomicUsize::new(0));
        let algorithm = Remembering { algorithm: &COUNTING, good: Mutex::default() };
        let cases = [
            (["key", "message", "age"], true, 1),
            (["key", "message", "age"], true, 1),
            (["yek", "message", "age"], true, 2),
            (["keym", "essage", "age"], true, 3),
            (["key", "message", "ega"], false, 4),
            (["key", "message", "ega"], false, 5),
            (["key", "messagea", "ge"], false, 6),
            (["key", "message", "age"], true, 6),
        ];
        for (texts, good, asked) in cases {
            let [key, message, signature] = texts.map(str::as_bytes);
            assert_eq!(algorithm.verify_signature(key, message, signature).is_ok(), good, "{texts:?}");
            assert_eq!(COUNTING.0.load(Ordering::SeqCst), asked, "{texts:?}");
        }
    }

    #[test]
    fn not_more_are_remembered_than_there_is_room_for() {
        static COUNTING: Counting = Counting(AtomicUsize::new(0));
        let algorithm = Remembering { algorithm: &COUNTING, good: Mutex::default() };
        for number in 0..=SIGNATURES_MAX {
            algorithm.verify_signature(&number.to_be_bytes(), b"message", b"age").unwrap();
        }
        assert_eq!(algorithm.good.lock().unwrap().len(), 1);
    }
}
