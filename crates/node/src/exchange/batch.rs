//! A batch of URLs as it crosses the wide area: sorted, so that each stands beside those that it shares most with, what else is
//! said of them apart, and all of it compressed. (To leave out what a URL shares with the one before costs more than it saves:
//! the numbers that say how much compress worse than what they stand for.)

use std::io::Read;

use nephila_core::federation::{Batch, ListId};
use nephila_core::limits::{POST_BYTES_MAX, POST_URLS_MAX, POSTED_OF_HOST_MAX};
use nephila_core::record::{Found, How};
use serde::{Deserialize, Serialize};

/// What is sent is read by programs of this format alone.
const FORMAT: u8 = 2;
/// How hard it is compressed: a batch is small, and its way is long.
const LEVEL: i32 = 19;
/// Bytes of a batch before it is compressed: a host may fill it a little over.
const BYTES_MAX: u64 = (2 * POST_BYTES_MAX) as u64;
/// URLs of a batch.
const URLS_MAX: usize = POST_URLS_MAX + POSTED_OF_HOST_MAX;

/// What was sent is no batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NotABatch {
    #[error("it is not understood: both sides should run the same version")]
    Format,
    #[error("it is larger than a batch may be")]
    TooLarge,
}

/// The URLs, by kinds of what is said of them.
#[derive(Serialize, Deserialize)]
struct Columns {
    list: ListId,
    /// The URLs, each with the end of its line.
    urls: String,
    depths: Vec<u16>,
    hows: Vec<How>,
    redirects: Vec<u8>,
    /// What each was given, in bits; nothing if the sender does not go by that.
    bits: Vec<u8>,
}

pub(super) fn encode(batch: &Batch) -> Option<Vec<u8>> {
    let units = batch.units.iter().copied().map(Some).chain(std::iter::repeat(None));
    let mut found: Vec<(&Found, Option<u64>)> = batch.found.iter().zip(units).collect();
    found.sort_by(|(a, _), (b, _)| a.url.cmp(&b.url));
    let bits_of = |units: u64| (u64::BITS - units.leading_zeros()) as u8;
    let bits = found.iter().filter_map(|(_, units)| units.map(bits_of)).collect();
    let found: Vec<&Found> = found.into_iter().map(|(found, _)| found).collect();
    let columns = Columns {
        list: batch.list,
        urls: found.iter().flat_map(|found| [&*found.url, "\n"]).collect(),
        depths: found.iter().map(|found| found.depth).collect(),
        hows: found.iter().map(|found| found.how).collect(),
        redirects: found.iter().map(|found| found.redirects).collect(),
        bits,
    };
    let compressed = zstd::bulk::compress(&postcard::to_stdvec(&columns).ok()?, LEVEL).ok()?;
    Some([vec![FORMAT], compressed].concat())
}

pub(super) fn decode(bytes: &[u8]) -> Result<Batch, NotABatch> {
    let Some((&FORMAT, bytes)) = bytes.split_first() else { return Err(NotABatch::Format) };
    let mut plain = Vec::new();
    let reader = zstd::stream::read::Decoder::new(bytes).map_err(|_| NotABatch::Format)?;
    reader.take(BYTES_MAX + 1).read_to_end(&mut plain).map_err(|_| NotABatch::Format)?;
    if plain.len() as u64 > BYTES_MAX {
        return Err(NotABatch::TooLarge);
    }
    let Columns { list, urls, depths, hows, redirects, bits } =
        postcard::from_bytes(&plain).map_err(|_| NotABatch::Format)?;
    let count = depths.len();
    if count > URLS_MAX {
        return Err(NotABatch::TooLarge);
    }
    let is_said_of_all = bits.is_empty() || bits.len() == count;
    if [urls.lines().count(), hows.len(), redirects.len()] != [count; 3] || !is_said_of_all {
        return Err(NotABatch::Format);
    }
    let units_of = |bits: u8| match bits {
        0 => Ok(0),
        bits => 1_u64.checked_shl(u32::from(bits) - 1).ok_or(NotABatch::Format),
    };
    let units = bits.into_iter().map(units_of).collect::<Result<_, _>>()?;
    let about = depths.into_iter().zip(hows).zip(redirects);
    let found = urls.lines().zip(about).map(|(url, ((depth, how), redirects))| Found {
        url: url.to_owned(),
        depth,
        how,
        redirects,
    });
    Ok(Batch { list, found: found.collect(), units })
}

#[cfg(test)]
mod tests {
    use nephila_core::cash;
    use nephila_core::federation::{Federation, SiteEntry};
    use proptest::prelude::*;

    use super::*;

    fn list() -> ListId {
        let site = SiteEntry { name: "a".to_owned(), ..SiteEntry::default() };
        Federation::new(7, vec![site], "a", []).unwrap().list()
    }

    fn found(url: String, depth: u16) -> Found {
        Found {
            url,
            depth,
            how: if depth.is_multiple_of(2) { How::Link } else { How::Listed },
            redirects: depth as u8,
        }
    }

    proptest! {
        #[test]
        fn what_is_sent_arrives_sorted(
            urls in prop::collection::vec(("[a-c]{1,3}/[a-cé]{0,9}", 0_u16..300, 0_u64..=u64::MAX), 0..60),
            by_cash: bool,
        ) {
            let one = |(url, depth, units)| (found(url, depth), cash::rounded(units));
            let mut all: Vec<(Found, u64)> = urls.into_iter().map(one).collect();
            let batch = |all: &[(Found, u64)]| {
                let (found, units): (Vec<Found>, Vec<u64>) = all.iter().cloned().unzip();
                Batch { list: list(), found, units: if by_cash { units } else { Vec::new() } }
            };
            let sent = encode(&batch(&all)).unwrap();
            all.sort_by(|(a, _), (b, _)| a.url.cmp(&b.url));
            prop_assert_eq!(decode(&sent), Ok(batch(&all)));
        }

        #[test]
        fn whatever_comes_is_no_trouble(mut bytes in prop::collection::vec(any::<u8>(), 0..300), at in 0_usize..200, to: u8) {
            let _ = decode(&bytes);
            let batch = Batch { list: list(), found: (0..9).map(|n| found(format!("http://a.test/{n}"), n)).collect(), units: Vec::new() };
            bytes = encode(&batch).unwrap();
            let at = at % bytes.len();
            bytes[at] = to;
            let _ = decode(&bytes);
            let _ = decode(&bytes[..at]);
        }
    }

    #[test]
    fn what_is_too_large_is_refused() {
        let many = (0..URLS_MAX + 1).map(|n| found(format!("http://a.test/{n}"), 0)).collect();
        let sent = encode(&Batch { list: list(), found: many, units: Vec::new() }).unwrap();
        assert_eq!(decode(&sent), Err(NotABatch::TooLarge));
        let long = format!("http://a.test/{}", "x".repeat(60_000));
        let many = (0..50).map(|_| found(long.clone(), 0)).collect();
        let sent = encode(&Batch { list: list(), found: many, units: Vec::new() }).unwrap();
        assert!(sent.len() < 1_000);
        assert_eq!(decode(&sent), Err(NotABatch::TooLarge));
        let mut bomb = vec![FORMAT];
        zstd::stream::copy_encode(&*vec![0; 50 << 20], &mut bomb, 1).unwrap();
        assert_eq!(decode(&bomb), Err(NotABatch::TooLarge));
        assert_eq!(decode(&[9, 9]), Err(NotABatch::Format));
    }

    #[test]
    fn a_url_takes_few_bytes() {
        let mut state = 1_u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state >> 24
        };
        let urls = (0..POST_URLS_MAX).map(|n| {
            format!("https://www.host-{}.example.org/directory-{}/page-{:010x}.html", n % 20, n % 7, next())
        });
        let batch = Batch { list: list(), found: urls.map(|url| found(url, 2)).collect(), units: Vec::new() };
        let bytes = encode(&batch).unwrap().len();
        assert!(bytes < 8 * POST_URLS_MAX, "{} bytes a URL", bytes as f64 / POST_URLS_MAX as f64);
    }
}
