//! How far apart places are: round trips between cities, as somebody has measured them.
//!
//! A directory has one of each city, with spaces as `+`, and in it `<city>Ping.csv`: a line for each other city, which has its
//! name with country and continent in quotes, and then kilometres and milliseconds, each as text and as a number.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, bail, ensure};

/// Where the round trips are looked for.
pub(super) const DIR: &str = "../shared/data/latency/wondernetwork-2018/core/src/main/resources/Data";
/// The column that has the mean round trip, after the name.
const MEAN_COLUMN: usize = 3;
/// The longest round trip that is believed, in milliseconds.
const LONGEST_MS: f64 = 10_000.0;

/// The round trip between each two of some places, in their order.
pub(super) fn round_trips(dir: &Path, places: &[String]) -> anyhow::Result<Vec<Vec<Duration>>> {
    let row = |from: &String| {
        let to = |to: &String| if to == from { Ok(Duration::ZERO) } else { round_trip(dir, from, to) };
        places.iter().map(to).collect()
    };
    places.iter().map(row).collect()
}

/// As measured from either of the two.
fn round_trip(dir: &Path, a: &str, b: &str) -> anyhow::Result<Duration> {
    for (from, to) in [(a, b), (b, a)] {
        let path = file(dir, from)?;
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        if let Some(ms) = find(&text, to) {
            return Ok(Duration::from_secs_f64(ms / 1_000.0));
        }
    }
    bail!("nobody has measured how far {a} is from {b}")
}

fn file(dir: &Path, place: &str) -> anyhow::Result<PathBuf> {
    ensure!(place.chars().all(|char| char.is_alphabetic() || char == ' '), "{place:?} is no name of a place");
    let name = place.replace(' ', "+");
    let path = dir.join(&name).join(format!("{name}Ping.csv"));
    ensure!(path.exists(), "{place:?} is not among the places in {}", dir.display());
    Ok(path)
}

fn find(text: &str, place: &str) -> Option<f64> {
    let is_it = |name: &str| name.strip_prefix(place).is_some_and(|rest| rest.starts_with(' '));
    let mut rows = text.lines().filter_map(|line| line.strip_prefix('"')?.split_once("\","));
    let (_, figures) = rows.find(|(name, _)| is_it(name))?;
    let ms: f64 = figures.split(',').nth(MEAN_COLUMN)?.parse().ok()?;
    (0.0..=LONGEST_MS).contains(&ms).then_some(ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMA: &str = "City,Distance,hidden,Average,hidden.1,% of SOLf/o\n\
        \"Parisville Nowhere, Oceania\",1km,1,3.00ms,3.0,50%\n\
        \"Paris France, Eurasia\",10256km,10256,171.30ms,171.3,59.98%\n\
        \"New York United States, North America\",5812km,5812,79.37ms,79.37,73.57%\n\
        \"Nis Serbia, Eurasia\",1km,1,no,no,1%\n";

    #[test]
    fn places_are_as_far_apart_as_the_file_says() {
        let dir = tempfile::tempdir().unwrap();
        for (place, text) in [("Lima", LIMA), ("Paris", ""), ("New+York", ""), ("Nis", "")] {
            fs::create_dir(dir.path().join(place)).unwrap();
            fs::write(dir.path().join(place).join(format!("{place}Ping.csv")), text).unwrap();
        }
        let round_trips = |places: &[&str]| {
            let places: Vec<String> = places.iter().map(|place| (*place).to_owned()).collect();
            round_trips(dir.path(), &places)
        };
        let [zero, near, far] = [0, 79_370, 171_300].map(Duration::from_micros);
        // The other direction says it where the file of the first does not.
        assert_eq!(round_trips(&["Paris", "Lima"]).unwrap(), [[zero, far], [far, zero]]);
        assert_eq!(round_trips(&["Lima", "New York"]).unwrap(), [[zero, near], [near, zero]]);
        for wrong in [["Paris", "New York"], ["Lima", "Nis"], ["Lima", "Atlantis"], ["Lima", "../Lima"]] {
            assert!(round_trips(&wrong).is_err(), "{wrong:?}");
        }
    }
}
