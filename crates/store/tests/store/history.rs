//! The journal in segments and its history: every record can be read at its place, whatever happened meanwhile.

use std::path::Path;
use std::sync::Arc;

use nephila_disk::{Disk, SimDisk};
use nephila_store::ErrorKind;
use nephila_store::LogReader;
use nephila_store::history::shorten;
use nephila_store::log::Log;

use crate::samples::*;

const SEEDS: u64 = 300;
const DROPPED: u8 = 7;

/// Keeps the first half of a payload, and nothing of some.
fn first_half(payload: &[u8], out: &mut Vec<u8>) {
    if payload[0] != DROPPED {
        out.extend_from_slice(&payload[..payload.len().div_ceil(2)]);
    }
}

/// Payloads and their places.
type Payloads = Vec<(u64, Vec<u8>)>;

fn open_log(disk: &SimDisk, from: u64) -> nephila_store::Result<(Log, Payloads)> {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let mut read = Vec::new();
    let log = Log::open(&disk, Path::new(DIR), from, 3_000, &mut |place, payload| {
        read.push((place, payload.to_vec()));
        Ok(())
    })?;
    Ok((log, read))
}

fn run(seed: u64) {
    let mut random = Random(seed);
    let mut disk = SimDisk::new(seed);
    // What was synced, and up to where it was shortened or may have been.
    let mut kept = Payloads::new();
    let (mut from, mut shortened) = (0, 0);
    for life in 0..6 {
        match random.below(3) {
            0 if life < 5 => disk.fail_after(random.below(40)),
            _ => disk.set_capacity(u64::MAX),
        }
        let Ok((mut log, read)) = open_log(&disk, from) else {
            disk = disk.power_cut();
            continue;
        };
        let expected: Vec<_> = kept.iter().filter(|(place, _)| *place >= from).cloned().collect();
        assert!(read.starts_with(&expected), "what was synced is read again");
        kept.retain(|(place, _)| *place < from);
        kept.extend(read);
        for _ in 0..random.below(40) {
            let bytes = 1 + random.below(400) as usize;
            let payload: Vec<u8> = (0..bytes).map(|_| random.below(9) as u8).collect();
            let Ok(place) = log.append(|out| {
                out.extend_from_slice(&payload);
                Ok(())
            }) else {
                break;
            };
            if log.sync().is_err() {
                break;
            }
            kept.push((place, payload));
        }
        let limit = kept.get(random.below(1 + kept.len() as u64) as usize).map_or(from, |(place, _)| *place);
        let limit = limit.max(shortened).min(log.end());
        shortened = limit;
        from = from.max(limit);
        // What fails is tried again in another life.
        let _ = shorten(&disk, Path::new(DIR), limit, &first_half);
        disk = if random.one_in(2) { disk.kill() } else { disk.power_cut() };
    }
    disk.set_capacity(u64::MAX);
    let reader = LogReader::new(Arc::new(disk), Path::new(DIR));
    for (place, payload) in &kept {
        let (mut got, mut short) = (Vec::new(), Vec::new());
        first_half(payload, &mut short);
        match reader.read(*place, &mut got) {
            Ok(()) => assert!(got == *payload || *place < shortened && got == short, "{place}"),
            Err(error) => {
                assert!(*place < shortened && short.is_empty(), "{place}: {error}");
                assert_eq!(error.kind(), ErrorKind::Format);
            }
        }
    }
    let Some((last, _)) = kept.last() else { return };
    let (mut walked, mut place) = (Payloads::new(), 0);
    while place <= *last {
        let behind = reader.read_on(place, *last, 1_000, &mut |place, payload| {
            walked.push((place, payload.to_vec()));
            Ok(())
        });
        place = behind.unwrap();
    }
    let mut walked = walked.into_iter().peekable();
    for (place, payload) in &kept {
        let got = walked.next_if(|(walked, _)| walked == place).map(|(_, got)| got);
        let mut short = Vec::new();
        first_half(payload, &mut short);
        let is_short = got.as_ref().is_some_and(|got| *got == short) || got.is_none() && short.is_empty();
        assert!(got.as_ref() == Some(payload) || *place < shortened && is_short, "{place}");
    }
    assert_eq!(walked.next(), None);
}

#[test]
fn every_record_is_read_at_its_place() {
    for seed in 0..SEEDS {
        let outcome = std::panic::catch_unwind(|| run(seed));
        assert!(outcome.is_ok(), "seed {seed}");
    }
}

#[test]
fn a_journal_whose_beginning_is_missing_is_refused() {
    let disk = SimDisk::new(1);
    let (mut log, _) = open_log(&disk, 0).unwrap();
    for _ in 0..40 {
        log.append(|out| {
            out.extend_from_slice(&[1; 300]);
            Ok(())
        })
        .unwrap();
    }
    log.sync().unwrap();
    log.cut(9_000).unwrap();
    let error = open_log(&disk, 0).err().unwrap();
    assert!(error.to_string().contains("the journal before it is missing"), "{error}");
    assert!(open_log(&disk, 9_000).is_ok());
}
