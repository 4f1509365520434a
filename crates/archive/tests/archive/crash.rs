//! Kills and power cuts at any moment, over many seeds: what was synced is there, and what is there is whole.

use std::path::PathBuf;
use std::sync::Arc;

use nephila_archive::{Options, Pointer, WarcWriter, read_record};
use nephila_disk::{Disk, SimDisk};

use crate::samples::{COMPRESSIONS, Sample, check_dir, chunked, noise, options, plain, time};

/// Enough for every test run; NEPHILA_SEEDS asks for more.
const SEEDS: u64 = 60;
const LIVES: usize = 4;

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// A capture that was acknowledged, and how safe it is.
struct Kept {
    archived: Vec<u8>,
    pointer: Pointer,
    safe: Safe,
}

#[derive(Clone, Copy, PartialEq, PartialOrd)]
enum Safe {
    Buffered,
    FromKills,
    FromPowerCuts,
}

fn sample(random: &mut Random, count: usize) -> Sample {
    let url = format!("http://example.com/{count}");
    // Now and then one that is written ahead of its end.
    let large = random.below(1000) == 0;
    let length = if large { 1_200_000 } else { random.below(3000) as usize };
    let body = noise(length, count as u64);
    let sample = if random.below(3) == 0 { chunked(&url, &body, 500) } else { plain(&url, &body) };
    if large { sample.spilled() } else { sample }
}

/// Writes until a random end or until the disk fails, and says what is how safe.
fn live(disk: Arc<dyn Disk>, options: &Options, random: &mut Random, kept: &mut Vec<Kept>) {
    let dir = PathBuf::from("/warc");
    let Ok((mut writer, recovery)) = WarcWriter::open(Arc::clone(&disk), dir.clone(), options.clone()) else {
        return;
    };
    kept.retain(|capture| {
        let holds = recovery.holds(&capture.pointer);
        assert!(holds || capture.safe == Safe::Buffered, "a safe capture is lost: {:?}", capture.pointer);
        holds
    });
    check_dir(&disk, &dir);
    for capture in kept.iter_mut() {
        let record = read_record(&*disk, &dir, &capture.pointer).unwrap();
        assert!(record.block == capture.archived, "another record at {:?}", capture.pointer);
        capture.safe = Safe::FromPowerCuts;
    }
    for count in 0..random.below(40) as usize {
        let sample = sample(random, count);
        // A failure ends neither writer nor test: the next calls must cope with what it left.
        if let Ok(pointer) = sample.append(&mut writer, time(count as i64)) {
            kept.push(Kept { archived: sample.archived, pointer, safe: Safe::Buffered });
        }
        let (done, safe) = match random.below(6) {
            0 => (writer.sync().is_ok(), Safe::FromPowerCuts),
            1 | 2 => (writer.flush().is_ok(), Safe::FromKills),
            _ => (false, Safe::Buffered),
        };
        for capture in kept.iter_mut().filter(|capture| done && capture.safe < safe) {
            capture.safe = safe;
        }
    }
    if random.below(4) == 0 && writer.close().is_ok() {
        for capture in kept {
            capture.safe = Safe::FromPowerCuts;
        }
    }
}

fn run(seed: u64) {
    let mut random = Random(seed);
    let mut disk = SimDisk::new(seed);
    // Small files roll often; large ones have more to lose.
    let roll_bytes = [3_000, 20_000, 200_000][random.below(3) as usize];
    let options = options(roll_bytes, COMPRESSIONS[random.below(3) as usize]);
    let mut kept = Vec::new();
    for _ in 0..LIVES {
        if random.below(2) == 0 {
            disk.fail_after(random.below(120));
        }
        live(Arc::new(disk.clone()), &options, &mut random, &mut kept);
        if random.below(2) == 0 {
            disk = disk.kill();
        } else {
            disk = disk.power_cut();
            for capture in kept.iter_mut().filter(|capture| capture.safe == Safe::FromKills) {
                capture.safe = Safe::Buffered;
            }
        }
    }
    // A last life without failures looks at what is left.
    live(Arc::new(disk.clone()), &options, &mut random, &mut kept);
}

#[test]
fn crashes_lose_nothing_that_was_synced() {
    let seeds = std::env::var("NEPHILA_SEEDS").map_or(SEEDS, |seeds| seeds.parse().unwrap());
    for seed in 0..seeds {
        let outcome = std::panic::catch_unwind(|| run(seed));
        assert!(outcome.is_ok(), "seed {seed}");
    }
}
