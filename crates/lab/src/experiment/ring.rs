//! How evenly the ring spreads keys and partitions over agents, and that nothing moves that need not.
//!
//! Beside it stands the way of the UbiCrawler paper, points on a circle, with 100 and 200 of them an agent: the bars are what
//! the paper says of that.

use std::{collections::BTreeMap, fmt::Write as _, path::PathBuf, thread};

use anyhow::{Context as _, anyhow, ensure};
use nephila_core::assign::{PARTITIONS, Ring};
use serde::Serialize;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::{
    Outcome, Setup,
    plot::{self, Line},
    process::thread_cpu,
};

/// What the paper reaches with 200 points an agent; with 100 it is 6.2 %.
const DEVIATION_PERCENT_MAX: f64 = 4.5;
/// Up to so many agents the bar also holds in partitions. With more, the partitions of each are too few.
const FEW_AGENTS: usize = 10;
const TABLE_MS_MAX: f64 = 100.0;
/// The fastest of so many counts.
const TABLES: usize = 3;

/// How the experiment is done.
#[derive(Clone, Debug)]
pub struct RingOptions {
    /// The first seed: names of agents and keys follow from it.
    pub seed: u64,
    /// How many seeds are averaged over.
    pub seeds: u16,
    /// Random keys, each time.
    pub keys: u64,
    /// How many agents, in turn.
    pub agents: Vec<usize>,
    /// Where a plot goes, as SVG.
    pub plot: Option<PathBuf>,
}

impl Default for RingOptions {
    fn default() -> RingOptions {
        RingOptions {
            seed: 1,
            seeds: 20,
            keys: 2_000_000,
            agents: vec![2, 3, 5, 10, 20, 50, 100, 200, 500, 1_000],
            plot: None,
        }
    }
}

/// How far the agents are from having equal shares.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Spread {
    /// The mean of how far each is off, in percent of an equal share.
    deviation_percent: f64,
    /// What the agent with the most has, in equal shares.
    worst: f64,
}

impl Spread {
    fn of(counts: &[u64]) -> Spread {
        let equal = counts.iter().sum::<u64>() as f64 / counts.len() as f64;
        let shares = counts.iter().map(|count| *count as f64 / equal);
        Spread {
            deviation_percent: 100.0 * shares.clone().map(|share| (share - 1.0).abs()).sum::<f64>()
                / counts.len() as f64,
            worst: shares.fold(0.0, f64::max),
        }
    }

    /// Adds a part of another, as means are made.
    fn add(&mut self, other: Spread, part: f64) {
        self.deviation_percent += other.deviation_percent * part;
        self.worst += other.worst * part;
    }
}

/// What was found for one number of agents, by one seed or as the mean over all.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Found {
    agents: usize,
    keys: Spread,
    partitions: Spread,
    keys_100_points: Spread,
    keys_200_points: Spread,
    partitions_200_points: Spread,
    /// Partitions that moved between two agents when another one joined or left.
    strayed: u64,
}

/// Spreads random keys and the partitions over 2 to 1,000 agents, and lets one more join and one leave.
pub fn ring(setup: &Setup, options: &RingOptions) -> anyhow::Result<Outcome> {
    ensure!(
        options.seeds > 0 && options.agents.iter().all(|agents| *agents > 1),
        "there is nothing to spread"
    );
    let mut means: BTreeMap<usize, Found> = BTreeMap::new();
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let seeds: Vec<u64> = (options.seed..options.seed.saturating_add(options.seeds.into())).collect();
    for some in seeds.chunks(threads) {
        let found = thread::scope(|scope| {
            let running: Vec<_> = some.iter().map(|seed| scope.spawn(|| spread(options, *seed))).collect();
            running.into_iter().map(|one| one.join()).collect::<Result<Vec<_>, _>>()
        });
        for one in found.map_err(|_| anyhow!("a thread panicked"))?.into_iter().flatten() {
            let (mean, part) = (means.entry(one.agents).or_default(), 1.0 / f64::from(options.seeds));
            mean.agents = one.agents;
            mean.keys.add(one.keys, part);
            mean.partitions.add(one.partitions, part);
            mean.keys_100_points.add(one.keys_100_points, part);
            mean.keys_200_points.add(one.keys_200_points, part);
            mean.partitions_200_points.add(one.partitions_200_points, part);
            mean.strayed += one.strayed;
        }
        setup.say(format!("seed {} is done", some.last().copied().unwrap_or_default()));
    }
    let means: Vec<Found> = means.into_values().collect();
    let most = means.last().context("there are no agents")?.agents;
    let outcome = judge(&means, most, table_ms(&names(options.seed, most)))?;
    if let Some(path) = &options.plot {
        draw(path, &means)?;
    }
    Ok(outcome)
}

fn judge(means: &[Found], most: usize, table_ms: f64) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome::new("ring");
    let mut at_most = |what: &str, to: usize, deviation: fn(&Found) -> f64| {
        let within = means.iter().filter(|found| found.agents <= to);
        if let Some(worst) = within.max_by(|a, b| deviation(a).total_cmp(&deviation(b))) {
            outcome.bar(
                format!("mean deviation of an agent's share of {what}, up to {to} agents"),
                format!("<= {DEVIATION_PERCENT_MAX} %"),
                format!("{:.2} % ({} agents)", deviation(worst), worst.agents),
                deviation(worst) <= DEVIATION_PERCENT_MAX,
            );
        }
    };
    at_most("random keys", most, |found| found.keys.deviation_percent);
    at_most("partitions", most.min(FEW_AGENTS), |found| found.partitions.deviation_percent);
    let strayed = means.iter().map(|found| found.strayed).sum();
    outcome.none("partitions that moved between two old agents", strayed, &[]);
    outcome.bar(
        format!("processor time of the table for {most} agents"),
        format!("<= {TABLE_MS_MAX} ms"),
        format!("{table_ms:.1} ms"),
        table_ms <= TABLE_MS_MAX,
    );
    outcome.figure("by_agents", serde_json::to_value(means)?);
    outcome.figure("table_ms", table_ms);
    outcome.table = table(means)?;
    Ok(outcome)
}

fn table(means: &[Found]) -> Result<String, std::fmt::Error> {
    let mut text = "        mean deviation in %, and what the agent with the most has of an equal share (the mean over the seeds)\n\
                    agents          keys    partitions  keys: 100 points    200 points  partitions: 200 points\n"
        .to_owned();
    let cell = |spread: Spread| format!("{:.2} {:5.3}", spread.deviation_percent, spread.worst);
    for found in means {
        let cells = [found.keys, found.partitions, found.keys_100_points, found.keys_200_points];
        let [keys, partitions, points_100, points_200] = cells.map(cell);
        let other = cell(found.partitions_200_points);
        writeln!(
            text,
            "{:6}  {keys:>12}  {partitions:>12}  {points_100:>16}  {points_200:>12}  {other:>22}",
            found.agents
        )?;
    }
    Ok(text)
}

fn draw(path: &std::path::Path, means: &[Found]) -> anyhow::Result<()> {
    let line = |name: &str, spread: fn(&Found) -> Spread| Line {
        name: format!("mean deviation of an agent's share (%): {name}"),
        points: means.iter().map(|found| (found.agents as f64, spread(found).deviation_percent)).collect(),
    };
    let lines = [
        line("keys", |found| found.keys),
        line("keys, 100 points an agent on a circle", |found| found.keys_100_points),
        line("keys, 200 points an agent on a circle", |found| found.keys_200_points),
        line("partitions", |found| found.partitions),
        line("partitions, 200 points an agent on a circle", |found| found.partitions_200_points),
    ];
    plot::lines(path, "How evenly agents share", "agents", &lines)
}

/// All numbers of agents, by one seed.
fn spread(options: &RingOptions, seed: u64) -> Vec<Found> {
    let mut keys: Vec<u64> =
        (0..options.keys).map(|number| xxh3_64_with_seed(&number.to_le_bytes(), seed)).collect();
    keys.sort_unstable();
    // As even as 16,384 places on a circle can be.
    let places: Vec<u64> = (0..u64::from(PARTITIONS)).map(|partition| partition << 50 | 1 << 49).collect();
    let found = |agents: &usize| {
        // One more, who joins later.
        let names = names(seed, agents + 1);
        let old = ring_of(&names[..*agents]);
        let count = |owners: &mut dyn Iterator<Item = Option<&&Named>>| {
            let mut counts = vec![0; *agents];
            owners.flatten().for_each(|owner| counts[owner.place] += 1);
            Spread::of(&counts)
        };
        let (points_100, points_200) =
            (Points::new(&names[..*agents], 100), Points::new(&names[..*agents], 200));
        Found {
            agents: *agents,
            keys: count(&mut keys.iter().map(|key| old.owner_of_key(*key))),
            partitions: count(&mut (0..PARTITIONS).map(|partition| old.owner(partition))),
            keys_100_points: Spread::of(&points_100.counts(&keys)),
            keys_200_points: Spread::of(&points_200.counts(&keys)),
            partitions_200_points: Spread::of(&points_200.counts(&places)),
            strayed: strayed(&names),
        }
    };
    options.agents.iter().map(found).collect()
}

/// An agent that knows which it is, so that counting does not look for its name.
#[derive(Clone, Debug)]
struct Named {
    name: String,
    place: usize,
}

impl AsRef<[u8]> for Named {
    fn as_ref(&self) -> &[u8] {
        self.name.as_bytes()
    }
}

fn names(seed: u64, agents: usize) -> Vec<Named> {
    (0..agents).map(|place| Named { name: format!("agent-{place}.site-{seed}"), place }).collect()
}

fn ring_of<'a>(agents: impl IntoIterator<Item = &'a Named>) -> Ring<&'a Named> {
    Ring::new(agents.into_iter().map(|agent| (agent, 1)))
}

/// Partitions that move between two agents when the last of these joins or when the first leaves. Either way the one ring
/// has an agent less than the other, and all that it does not own must be owned alike.
fn strayed(agents: &[Named]) -> u64 {
    let owner = |ring: &Ring<&Named>, partition| ring.owner(partition).map(|agent| agent.place);
    let all = ring_of(agents);
    let moved = |gone: usize| {
        let rest = ring_of(agents.iter().filter(|agent| agent.place != gone));
        let strays = |partition: &u16| {
            let owner_then = owner(&all, *partition);
            owner_then != Some(gone) && owner_then != owner(&rest, *partition)
        };
        (0..PARTITIONS).filter(strays).count() as u64
    };
    moved(agents.len() - 1) + moved(0)
}

/// Processor time of making the table, in milliseconds.
fn table_ms(agents: &[Named]) -> f64 {
    let time = |_| {
        let begun = thread_cpu();
        let ring = ring_of(agents);
        let took = thread_cpu() - begun;
        // What nobody looks at need not be made.
        std::hint::black_box(ring.owner(0));
        took.as_secs_f64() * 1e3
    };
    (0..TABLES).map(time).fold(f64::INFINITY, f64::min)
}

/// The way of the paper: points on a circle for each agent, seeded by its identifier. A key is the agent's whose point is
/// nearest, on either side.
struct Points {
    agents: usize,
    /// In their order on the circle, with whose they are. The last one stands before the first too, and the first after the
    /// last: there the circle closes.
    points: Vec<(i128, usize)>,
}

impl Points {
    fn new(agents: &[Named], each: u64) -> Points {
        let of = |agent: &Named| {
            let (name, place) = (agent.name.clone().into_bytes(), agent.place);
            (0..each).map(move |number| (i128::from(xxh3_64_with_seed(&name, number)), place))
        };
        let mut points: Vec<(i128, usize)> = agents.iter().flat_map(of).collect();
        points.sort_unstable();
        if let (Some(first), Some(last)) = (points.first().copied(), points.last().copied()) {
            points.insert(0, (last.0 - (1 << 64), last.1));
            points.push((first.0 + (1 << 64), first.1));
        }
        Points { agents: agents.len(), points }
    }

    /// How many of the keys, which are sorted, are whose.
    fn counts(&self, keys: &[u64]) -> Vec<u64> {
        let mut counts = vec![0; self.agents];
        let (mut owner, mut before, mut counted) = (0, i128::MIN / 2, 0);
        for (point, agent) in &self.points {
            // The one before has what is nearer to it.
            let upto = keys.partition_point(|key| i128::from(*key) <= (before + point) / 2);
            counts[owner] += (upto - counted) as u64;
            (owner, before, counted) = (*agent, *point, upto);
        }
        counts[owner] += (keys.len() - counted) as u64;
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_relative_to_equal_shares() {
        let spread = Spread::of(&[30, 10, 20, 20]);
        assert_eq!((spread.deviation_percent, spread.worst), (25.0, 1.5));
    }

    #[test]
    fn keys_are_of_the_nearest_point() {
        let agents = names(7, 3);
        let points = Points::new(&agents, 5);
        let mut keys: Vec<u64> =
            (0..1_000_u64).map(|number| xxh3_64_with_seed(&number.to_le_bytes(), 0)).collect();
        keys.extend([0, u64::MAX]);
        keys.sort_unstable();
        let mut expected = vec![0; 3];
        for key in &keys {
            let all = agents.iter().flat_map(|agent| (0..5).map(move |number| (agent, number)));
            let nearest = all.min_by_key(|(agent, number)| {
                let point = xxh3_64_with_seed(agent.name.as_bytes(), *number);
                point.wrapping_sub(*key).min(key.wrapping_sub(point))
            });
            expected[nearest.unwrap().0.place] += 1;
        }
        assert_eq!(points.counts(&keys), expected);
    }
}
