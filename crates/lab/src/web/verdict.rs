//! The verdict: what the judge saw, summed up and compared with what the plan expects.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

pub use super::judge::Tally;
use super::{
    judge::{Gaps, Judge, Violation},
    kinds,
    plan::{Host, Plan, Rule},
};

/// Examples that the verdict shows to people, of each sort.
const SHOWN_MAX: usize = 3;

/// What a crawl was like, as JSON at `/.lab/verdict`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Verdict {
    /// Served whole, as a share of what is expected.
    pub coverage: f64,
    /// URLs that have to be fetched or, where they never succeed, tried.
    pub expected: u64,
    /// How many of them were served whole, or tried.
    pub served: u64,
    /// The others.
    pub missed: Tally,
    /// Requests for URLs after a whole, final answer to them.
    pub overlap: Tally,
    /// Requests in all, robots.txt and connects that failed included.
    pub requests: u64,
    /// Requests for robots.txt, for what it redirects to, and connects that failed.
    pub robots_requests: u64,
    /// Bytes of answers, heads included.
    pub bytes: u64,
    /// DNS queries for names of the web.
    pub dns_queries: u64,
    /// Connections in all.
    pub connections: u64,
    /// Most connections at once.
    pub connections_max: u64,
    /// TLS handshakes that went well.
    pub tls_handshakes: u64,
    /// How many of them took up an earlier session.
    pub tls_resumed: u64,
    /// From the first request to the last.
    pub elapsed_s: f64,
    /// Requests that were not judged because too many URLs were asked for.
    pub unjudged: u64,
    /// Sum of all violations.
    pub violations_total: u64,
    /// Violations by sort.
    pub violations: BTreeMap<Violation, Tally>,
    /// The same by kind of host, for kinds this web has.
    pub kinds: BTreeMap<String, KindVerdict>,
}

/// For people: what to be glad of first, then what went wrong, with examples.
impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn examples(f: &mut fmt::Formatter<'_>, tally: &Tally) -> fmt::Result {
            tally.examples.iter().take(SHOWN_MAX).try_for_each(|example| writeln!(f, "    {example}"))
        }
        if self.requests == 0 {
            return writeln!(f, "nobody has asked for anything");
        }
        writeln!(
            f,
            "{} requests, {} of them for robots.txt or in vain, {:.1} MB, in {:.1} s",
            self.requests,
            self.robots_requests,
            self.bytes as f64 / 1e6,
            self.elapsed_s
        )?;
        writeln!(f, "coverage {:.3}: {} of {} expected URLs", self.coverage, self.served, self.expected)?;
        let missing = |kind: &&(&String, &KindVerdict)| kind.1.served < kind.1.expected;
        let mut kinds: Vec<_> = self.kinds.iter().filter(|kind| missing(&kind)).collect();
        kinds.sort_by_key(|(_, kind)| std::cmp::Reverse(kind.expected - kind.served));
        for (name, kind) in kinds {
            writeln!(f, "    missed on {name}: {} of {}", kind.expected - kind.served, kind.expected)?;
        }
        examples(f, &self.missed)?;
        writeln!(f, "overlap {}: requests for what had been served whole", self.overlap.count)?;
        examples(f, &self.overlap)?;
        writeln!(f, "violations {}", self.violations_total)?;
        for (sort, tally) in self.violations.iter().filter(|(_, tally)| tally.count > 0) {
            writeln!(f, "  {}: {}", format!("{sort:?}").to_lowercase(), tally.count)?;
            examples(f, tally)?;
        }
        if self.unjudged > 0 {
            writeln!(f, "{} requests were not judged: they were for too many URLs", self.unjudged)?;
        }
        Ok(())
    }
}

/// What a crawl was like for one kind of host.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct KindVerdict {
    /// How many hosts there are.
    pub hosts: u64,
    /// Requests to them.
    pub requests: u64,
    /// Bytes they sent.
    pub bytes: u64,
    /// URLs that have to be fetched or tried.
    pub expected: u64,
    /// How many were.
    pub served: u64,
    /// The share of it; 1 if nothing is expected.
    pub coverage: f64,
    /// When the last expected page was served, since the first request of the crawl.
    pub finish_s: Option<f64>,
    /// Most requests at once at one host.
    pub concurrency_max: u32,
    /// Mean gap between requests to a host, where it did not ask to wait longer.
    pub gap_mean_s: Option<f64>,
    /// Smallest gap.
    pub gap_min_s: Option<f64>,
    /// Gaps that 10, 50, 90 and 99 in a hundred do not exceed, to 3 %.
    pub gap_quantiles_s: Option<[f64; 4]>,
}

impl KindVerdict {
    fn take_gaps(&mut self, gaps: &Gaps) {
        self.gap_mean_s = gaps.mean_s();
        self.gap_min_s = gaps.min_s();
        let all = [0.1, 0.5, 0.9, 0.99].map(|share| gaps.quantile_s(share));
        if let [Some(p10), Some(p50), Some(p90), Some(p99)] = all {
            self.gap_quantiles_s = Some([p10, p50, p90, p99]);
        }
    }
}

/// Sums up.
pub(super) fn verdict(plan: &Plan, judge: &Judge) -> Verdict {
    let mut verdict = Verdict {
        coverage: 1.0,
        expected: 0,
        served: 0,
        missed: Tally::default(),
        overlap: judge.overlap.clone(),
        requests: judge.requests,
        robots_requests: judge.robots_requests,
        bytes: 0,
        dns_queries: judge.dns_queries.values().map(|count| u64::from(*count)).sum(),
        connections: judge.connections.count,
        connections_max: judge.connections.open_max,
        tls_handshakes: judge.connections.handshakes,
        tls_resumed: judge.connections.resumed,
        elapsed_s: judge.first.map_or(0.0, |first| (judge.last - first) as f64 / 1e9),
        unjudged: judge.unjudged,
        violations_total: 0,
        violations: judge.violations.iter().map(|(sort, tally)| (*sort, tally.clone())).collect(),
        kinds: BTreeMap::new(),
    };
    for host in plan.hosts() {
        judge_host(&mut verdict, judge, &host);
    }
    for seen in judge.hosts.values() {
        let kind = verdict.kinds.entry(kinds::all()[seen.kind].name.to_owned()).or_default();
        kind.requests += seen.requests;
        kind.bytes += seen.bytes;
        kind.concurrency_max = kind.concurrency_max.max(seen.open_max);
        let finish = judge.first.filter(|_| seen.finish > 0).map(|first| (seen.finish - first) as f64 / 1e9);
        kind.finish_s =
            finish.map_or(kind.finish_s, |at| Some(kind.finish_s.map_or(at, |other| other.max(at))));
        verdict.bytes += seen.bytes;
    }
    for (name, kind) in &mut verdict.kinds {
        kind.coverage = share(kind.served, kind.expected);
        if let Some(index) = kinds::find(name) {
            kind.take_gaps(&judge.gaps[index]);
        }
    }
    verdict.coverage = share(verdict.served, verdict.expected);
    verdict.violations_total = verdict.violations.values().map(|tally| tally.count).sum();
    verdict
}

fn judge_host(verdict: &mut Verdict, judge: &Judge, host: &Host<'_>) {
    let (mut expected, mut served) = (0, 0);
    host.expected(|url| {
        expected += 1;
        let seen = judge.urls.get(&url.key);
        let done = match url.rule {
            Rule::Tried(_) => seen.is_some_and(|url| url.attempts > 0),
            _ => seen.is_some_and(|url| url.whole),
        };
        served += u64::from(done);
        if !done {
            verdict.missed.add(|| url.url());
        }
    });
    verdict.expected += expected;
    verdict.served += served;
    let seen: Vec<_> = (host.key()..host.key() + 4).filter_map(|key| judge.hosts.get(&key)).collect();
    let requests: u64 = seen.iter().map(|seen| seen.requests).sum();
    let bytes: u64 = seen.iter().map(|seen| seen.bytes).sum();
    let (requests_max, bytes_max) = ((host.kind.requests_max)(host), host.kind.bytes_max);
    let cost =
        |what: &str, spent: u64, max: u64| format!("{}: {spent} {what}, worth at most {max}", host.name());
    if requests > requests_max {
        let tally = verdict.violations.entry(Violation::Cost).or_default();
        tally.add(|| cost("requests", requests, requests_max));
    }
    if bytes > bytes_max {
        let tally = verdict.violations.entry(Violation::Cost).or_default();
        tally.add(|| cost("bytes", bytes, bytes_max));
    }
    let kind = verdict.kinds.entry(host.kind.name.to_owned()).or_default();
    kind.hosts += 1;
    kind.expected += expected;
    kind.served += served;
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 1.0 } else { part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_for_people() {
        let tally = |count, text: &str| Tally { count, examples: vec![text.to_owned(); 5] };
        let kind = |served| KindVerdict { expected: 10, served, ..KindVerdict::default() };
        let verdict = Verdict {
            coverage: 0.95,
            expected: 20,
            served: 19,
            missed: tally(1, "http://a.test/gone"),
            overlap: Tally::default(),
            requests: 40,
            robots_requests: 2,
            bytes: 1_500_000,
            dns_queries: 0,
            connections: 3,
            connections_max: 2,
            tls_handshakes: 1,
            tls_resumed: 0,
            elapsed_s: 2.0,
            unjudged: 0,
            violations_total: 7,
            violations: BTreeMap::from([(Violation::Robots, tally(7, "http://b.test/x"))]),
            kinds: BTreeMap::from([("plain".to_owned(), kind(9)), ("moved".to_owned(), kind(10))]),
        };
        let text = verdict.to_string();
        for part in [
            "40 requests, 2 of them for robots.txt or in vain, 1.5 MB, in 2.0 s\n",
            "coverage 0.950: 19 of 20 expected URLs\n",
            "missed on plain: 1 of 10\n",
            "overlap 0",
            "violations 7\n  robots: 7\n    http://b.test/x\n",
        ] {
            assert!(text.contains(part), "{part:?} is not in:\n{text}");
        }
        assert_eq!(text.matches("http://b.test/x").count(), SHOWN_MAX);
        assert!(!text.contains("moved"), "{text}");
    }
}
