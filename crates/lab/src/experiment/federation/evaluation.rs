//! What is to be known of federations, beside what the graph allows: rates at several distances and with loss, traffic and time
//! against one site that is stretched over all places, three sites against two of the same width, and how much of what is
//! found is never sent.
//!
//! Time and width are measured twice: with hosts that answer all sites equally soon, where neither matters much, and with hosts
//! that are as far from all sites but one as sites are from each other, each crawled by the nearest.

use std::{fmt::Write as _, time::Duration};

use super::{
    BYTES_MAX, FASTER, FederationOptions, LESS_TRAFFIC, Measured, OVERLAP_MAX, bounds::Bounds, crawl,
};
use crate::experiment::{
    Outcome, Setup,
    plot::{self, Line},
    sites::Shape,
};
use crate::wan::Wan;

/// Round trips that are compared.
const ROUND_TRIPS_MS: [u64; 3] = [20, 80, 300];
/// Of packets, at the longest distance.
const LOSS: f64 = 0.01;
/// The rate at 80 ms, of that at 20,
const RATE_FAR: f64 = 0.99;
/// and at 300 with loss.
const RATE_LOSS: f64 = 0.97;
/// The rate of three sites, in that of two with as many requests at once.
const SCALE: f64 = 1.45;
/// Requests at once where hosts are far: fewer than would keep all hosts busy, or nobody would wait for distance.
const FAR_WIDTH: usize = 12;
/// Of what is found of others, what is not sent.
const HITS: f64 = 0.92;

/// One crawl of the evaluation.
struct Row {
    what: String,
    measured: Measured,
}

/// See the module's documentation.
pub(super) fn evaluate(setup: &Setup, options: &FederationOptions) -> anyhow::Result<Outcome> {
    let bounds = Bounds::of(options)?;
    let mut outcome = Outcome::new("federation");
    let mut rows: Vec<Row> = Vec::new();
    let mut run = |what: &str, options: &FederationOptions, shape: Shape| -> anyhow::Result<usize> {
        setup.say(what);
        let measured = crawl(setup, options, &what.replace([' ', ',', '%'], "-"), shape)?;
        rows.push(Row { what: what.to_owned(), measured });
        Ok(rows.len() - 1)
    };
    let at = |ms: u64| FederationOptions { round_trip: Duration::from_millis(ms), ..options.clone() };
    let mut by_distance = Vec::new();
    for ms in ROUND_TRIPS_MS {
        by_distance.push((ms, run(&format!("{ms} ms"), &at(ms), Shape::Federation)?));
    }
    let lossy = match Wan::of_packets() {
        Ok(_) => {
            let options = FederationOptions { loss: LOSS, ..at(300) };
            Some(run("300 ms, 1 % loss", &options, Shape::Federation)?)
        }
        Err(error) => {
            setup.say(format!("nothing is said of loss here: {error}"));
            None
        }
    };
    let two = run("two sites", &FederationOptions { sites: 2, ..at(80) }, Shape::Federation)?;
    let stretched = run("stretched", &at(80), Shape::Stretched)?;
    let remembering = run("stretched, with a cache", &at(80), Shape::Remembering)?;
    let far = |sites: usize| FederationOptions {
        sites,
        host_places: 3,
        geography: true,
        far: Duration::from_millis(80),
        width: FAR_WIDTH,
        ..at(80)
    };
    let far = [
        run("far hosts, three sites", &far(3), Shape::Federation)?,
        run("far hosts, two sites", &far(2), Shape::Federation)?,
        run("stretched, far hosts", &FederationOptions { geography: false, ..far(3) }, Shape::Stretched)?,
    ];
    let of = |index: usize| &rows[index].measured;
    let [(_, near), (_, three), _] = by_distance[..] else { unreachable!("one of each distance") };

    sound(&rows, &mut outcome);
    let mut part = |what: &str, wanted: f64, is: f64| {
        outcome.bar(what, format!(">= {wanted}"), format!("{is:.4}"), is >= wanted);
    };
    part("rate at 80 ms, of that at 20", RATE_FAR, of(three).rate() / of(near).rate());
    if let Some(lossy) = lossy {
        part("rate at 300 ms with 1 % loss, of that at 20", RATE_LOSS, of(lossy).rate() / of(near).rate());
    }
    let less = |than: usize| 1.0 - of(three).bytes() as f64 / of(than).bytes().max(1) as f64;
    part("traffic below that of the stretched site", LESS_TRAFFIC, less(stretched));
    part("traffic below that of the stretched site with a cache", LESS_TRAFFIC, less(remembering));
    part("time of the stretched site, of three sites'", FASTER, of(stretched).seconds / of(three).seconds);
    part("rate of three sites, of two of the same width", SCALE, of(three).rate() / of(two).rate());
    let hits = 1.0 - of(three).sent as f64 / bounds.foreign_links.max(1) as f64;
    part("links to other sites that are not sent again", HITS, hits);
    let each = of(three).bytes() as f64 / of(three).sent.max(1) as f64;
    outcome.bar(
        "bytes a foreign URL",
        format!("<= {BYTES_MAX}"),
        format!("{each:.2}"),
        each <= BYTES_MAX && of(three).sent > 0,
    );

    far_bars(far.map(of), &mut outcome);

    outcome.table = table(&rows, &bounds, of(stretched).bytes());
    figures(&rows, &bounds, &mut outcome);
    if let Some(path) = &options.plot {
        let line = |name: &str, of_one: &dyn Fn(&Measured) -> f64| Line {
            name: name.to_owned(),
            points: by_distance.iter().map(|(ms, index)| (*ms as f64, of_one(of(*index)))).collect(),
        };
        let lines = [
            line("requests a second", &Measured::rate),
            line("bytes between sites a foreign URL", &|one| one.bytes() as f64 / one.sent.max(1) as f64),
        ];
        plot::lines(path, "Three sites at several distances", "round trip in ms", &lines)?;
    }
    Ok(outcome)
}

/// Where hosts are far from all sites but one each.
fn far_bars([three, two, stretched]: [&Measured; 3], outcome: &mut Outcome) {
    let less = 1.0 - three.bytes() as f64 / stretched.bytes().max(1) as f64;
    for (what, wanted, is) in [
        ("time of the stretched site, of three sites'", FASTER, stretched.seconds / three.seconds),
        ("rate of three sites, of two of the same width", SCALE, three.rate() / two.rate()),
        ("traffic below that of the stretched site", LESS_TRAFFIC, less),
    ] {
        outcome.bar(format!("far hosts: {what}"), format!(">= {wanted}"), format!("{is:.4}"), is >= wanted);
    }
}

/// All that was measured, by name.
fn figures(rows: &[Row], bounds: &Bounds, outcome: &mut Outcome) {
    for (name, value) in [
        ("least_seconds", bounds.seconds),
        ("least_bytes", bounds.bytes),
        ("foreign_links", bounds.foreign_links as f64),
        ("foreign_urls", bounds.foreign_urls as f64),
        ("most_hits", bounds.hit_rate()),
    ] {
        outcome.figure(name, value);
    }
    for Row { what, measured } in rows {
        let name = what.replace([' ', ',', '%'], "_");
        outcome.figure(&format!("{name}: seconds"), measured.seconds);
        outcome.figure(&format!("{name}: requests"), measured.seen.requests);
        outcome.figure(&format!("{name}: bytes"), measured.bytes());
        outcome.figure(&format!("{name}: urls_sent"), measured.sent);
    }
}

/// What must hold of every crawl; a stretched site asks a host from several places, and no bar but coverage is for it.
fn sound(rows: &[Row], outcome: &mut Outcome) {
    let least = rows.iter().map(|row| row.measured.verdict.coverage).fold(1.0, f64::min);
    outcome.equal("coverage, the least of all crawls", 1.0, least);
    let missed = |row: &Row| {
        let examples = row.measured.verdict.missed.examples.clone();
        examples.into_iter().map(|url| format!("{}: {url}", row.what)).collect::<Vec<String>>()
    };
    let count = rows.iter().map(|row| row.measured.verdict.missed.count).sum();
    outcome.none("pages missed", count, &rows.iter().flat_map(missed).collect::<Vec<String>>());
    let proper = rows.iter().filter(|row| !row.what.starts_with("stretched")).map(|row| &row.measured);
    let overlap = |one: &Measured| one.seen.overlap as f64 / one.seen.requests.max(1) as f64;
    let most = proper.clone().map(overlap).fold(0.0, f64::max);
    outcome.bar("overlap, the most", format!("< {OVERLAP_MAX}"), format!("{most:.4}"), most < OVERLAP_MAX);
    let violations = proper.clone().map(|one| one.verdict.violations_total).sum();
    outcome.none("politeness violations", violations, &[]);
    let disorderly: Vec<String> = rows.iter().flat_map(|row| row.measured.disorderly.clone()).collect();
    outcome.none("agents that did not end in order", disorderly.len() as u64, &disorderly);
}

fn table(rows: &[Row], bounds: &Bounds, stretched_bytes: u64) -> String {
    let mut table = format!(
        "{:24}  {:>8}  {:>8}  {:>8}  {:>12}  {:>9}  {:>9}\n",
        "", "coverage", "seconds", "a second", "bytes", "URLs sent", "bytes/URL"
    );
    for Row { what, measured } in rows {
        let each = match measured.sent {
            // What a stretched site sends is not counted by URLs.
            0 => String::new(),
            sent => format!("{:.2}", measured.bytes() as f64 / sent as f64),
        };
        // Writing to a String cannot fail.
        let _ = writeln!(
            table,
            "{what:24}  {:8.5}  {:8.1}  {:8.0}  {:12}  {:9}  {each:>9}",
            measured.verdict.coverage,
            measured.seconds,
            measured.rate(),
            measured.bytes(),
            measured.sent
        );
    }
    let _ = writeln!(
        table,
        "the graph allows: {:.1} s (the largest host, a page at a time), {:.0} bytes ({:.1} % below the stretched site),\n\
         {} foreign URLs behind {} links ({:.4} of these need not be sent)",
        bounds.seconds,
        bounds.bytes,
        100.0 - 100.0 * bounds.bytes / stretched_bytes.max(1) as f64,
        bounds.foreign_urls,
        bounds.foreign_links,
        bounds.hit_rate()
    );
    table
}
