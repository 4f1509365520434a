//! Everything that hurts at once: all kinds of host, with all durations divided by a scale so that retries and back-offs
//! happen within minutes, and then the good hosts alone, to see what the bad ones cost them.

use std::time::Duration;

use super::{Outcome, Place, Setup, archive, crawler::Crawler, serve};
use crate::web::{Kinds, PageBytes, Tally, Verdict, Web, WebConfig, judge::Violation, plan::Plan};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);
/// Good hosts may take so much longer with bad ones about.
const SLOWER_MAX: f64 = 1.05;
/// Pages that a host may have beyond those that are expected, before it counts as a trap.
const SPARE_PAGES: u64 = 200;
/// How long the crawl may take in all.
const RUN_MAX: Duration = Duration::from_secs(2 * 3_600);

/// How the experiment is done.
#[derive(Clone, Debug)]
pub struct HostileOptions {
    /// Everything the web does follows from this.
    pub seed: u64,
    /// Hosts of the web; 200 are enough for one of each kind.
    pub hosts: u32,
    /// Pages a host.
    pub pages: u32,
    /// All durations but the time-outs of a request are divided by this.
    pub scale: f64,
    /// The crawl ends when nothing is due for so long, divided by the scale. Longer than the last of the pauses before a
    /// retry, which the usual ten minutes would cut off.
    pub max_wait: Duration,
    /// How long a host takes to answer, in milliseconds after scaling. Long enough that the delays, and not the speed of
    /// this machine, say how long the crawl takes: otherwise the bad hosts cost the good ones processor time.
    pub latency_ms: (u32, u32),
    /// How large pages are.
    pub page_bytes: PageBytes,
    /// The time-outs of a request and of a DNS question, if not the usual ones.
    pub timeout: Option<Duration>,
    /// Which kinds of host there are.
    pub kinds: Kinds,
    /// Also crawl the good hosts alone, and compare.
    pub compare: bool,
}

impl Default for HostileOptions {
    fn default() -> HostileOptions {
        HostileOptions {
            seed: 1,
            hosts: 200,
            pages: 500,
            scale: 50.0,
            max_wait: HOUR + 15 * MINUTE,
            latency_ms: (60, 120),
            page_bytes: PageBytes::Web,
            timeout: None,
            kinds: Kinds::All,
            compare: true,
        }
    }
}

impl HostileOptions {
    /// Few hosts, with the durations that everyone gets who asks for none.
    pub fn default_delays() -> HostileOptions {
        HostileOptions {
            hosts: 20,
            pages: 100,
            scale: 1.0,
            max_wait: 10 * MINUTE,
            ..HostileOptions::default()
        }
    }

    fn scaled(&self, span: Duration) -> Duration {
        span.div_f64(self.scale)
    }

    fn web(&self) -> anyhow::Result<WebConfig> {
        let before_scale = |ms: u32| (f64::from(ms) * self.scale).round() as u32;
        let config = WebConfig {
            seed: self.seed,
            hosts: self.hosts,
            pages: self.pages,
            kinds: self.kinds.clone(),
            latency_ms: (before_scale(self.latency_ms.0), before_scale(self.latency_ms.1)),
            page_bytes: self.page_bytes,
            time_scale: self.scale,
            // Whole milliseconds: rounded down here, never up.
            delay_ms: self.scaled(Duration::from_secs(1)).as_millis() as u64,
            ip_delay_ms: self.scaled(Duration::from_millis(250)).as_millis() as u64,
            ..WebConfig::default()
        };
        let plan = Plan::new(config.clone())?;
        let pages_max = plan.hosts().map(|host| {
            let mut count = 0;
            host.expected(|_| count += 1);
            count
        });
        Ok(WebConfig { max_host_pages: pages_max.max().unwrap_or(0) + SPARE_PAGES, ..config })
    }

    fn crawler(&self, setup: &Setup, place: &Place, name: &str, web: &Web) -> anyhow::Result<Crawler> {
        let span = |span: Duration| self.scaled(span);
        let pauses = [MINUTE, 10 * MINUTE, HOUR].map(|pause| super::crawler::show(span(pause)));
        let crawler = Crawler::new(setup, place.path(), name, web)?
            .with_span("delay", span(Duration::from_secs(1)))
            .with_span("ip-delay", span(Duration::from_millis(250)))
            .with_span("backoff-min", span(MINUTE))
            .with_span("backoff-max", span(6 * HOUR))
            .with_span("host-give-up", span(3 * DAY))
            .with_span("no-such-name-span", span(DAY))
            .with("retry-pauses", pauses.join(","))
            .with_span("robots-ttl", span(DAY))
            .with_span("robots-ttl-min", span(HOUR))
            .with_span("robots-stale-max", span(30 * DAY))
            .with_span("robots-elsewhere-max", span(MINUTE))
            .with_span("max-wait", span(self.max_wait))
            .with("max-host-pages", web.plan().config.max_host_pages);
        Ok(match self.timeout {
            Some(timeout) => crawler.with_span("request-timeout", timeout).with_span("dns-timeout", timeout),
            None => crawler,
        })
    }
}

/// A crawl of everything that hurts: all that may be fetched is, once; no rule is broken, no trap costs more than its
/// limits, the archive is right, and the good hosts hardly notice.
pub fn hostile(setup: &Setup, options: &HostileOptions) -> anyhow::Result<Outcome> {
    let place = setup.place()?;
    let mut outcome = Outcome::new("hostile");
    let web = serve(options.web()?)?;
    let crawler = options.crawler(setup, &place, "all", &web)?;
    setup.say(crawler.command_line());
    let ended = crawler.run(RUN_MAX)?;
    let verdict = web.verdict();
    setup.say(format!("ended after {:.0} s: {}", ended.took.as_secs_f64(), ended.reason()));
    // Hosts that never answer keep their URLs waiting.
    let in_order = matches!((ended.code, ended.reason()), (0, "finished") | (3, "waiting"));
    outcome.bar("why the crawl ended", "finished or waiting", ended.reason(), in_order);
    judge(&mut outcome, &verdict);
    outcome.none("overlap", verdict.overlap.count, &verdict.overlap.examples);
    for figure in ["pages", "failed", "known_urls", "cpu_s", "rss_max_mb", "elapsed_s"] {
        outcome.figure(figure, ended.figure(figure)?);
    }
    setup.say("reading the archive");
    archive::check(&mut outcome, &nephila_node::directory::archive(&crawler.out), &web)?;
    if options.compare {
        compare(setup, options, &place, &web, &verdict, &mut outcome)?;
    }
    Ok(outcome)
}

/// What the judge says, apart from overlap: that depends on what was in flight when the crawl stopped.
pub(super) fn judge(outcome: &mut Outcome, verdict: &Verdict) {
    outcome.bar("coverage", 1, verdict.coverage, verdict.served == verdict.expected);
    if let Some(bar) = outcome.bars.last_mut() {
        bar.examples.clone_from(&verdict.missed.examples);
    }
    judge_manners(outcome, verdict);
}

/// What it says of manners and limits.
pub(super) fn judge_manners(outcome: &mut Outcome, verdict: &Verdict) {
    let cost = verdict.violations.get(&Violation::Cost).cloned().unwrap_or_default();
    let mut others = Tally::default();
    for (sort, tally) in verdict.violations.iter().filter(|(sort, _)| **sort != Violation::Cost) {
        others.count += tally.count;
        others.examples.extend(tally.examples.iter().map(|example| format!("{sort:?}: {example}")));
    }
    outcome.none("violations of politeness, robots and the rest", others.count, &others.examples);
    outcome.none("hosts that cost more than their limits", cost.count, &cost.examples);
    outcome.figure("expected_urls", verdict.expected);
    outcome.figure("requests", verdict.requests);
    outcome.figure("bytes_served", verdict.bytes);
}

/// Crawls the good hosts alone, and compares when the last of them was done.
fn compare(
    setup: &Setup,
    options: &HostileOptions,
    place: &Place,
    web: &Web,
    with_bad: &Verdict,
    outcome: &mut Outcome,
) -> anyhow::Result<()> {
    let plain = web.plan().hosts().filter(|host| host.kind_index == 0).count();
    let alone = serve(WebConfig { hosts: plain as u32, kinds: "plain".parse()?, ..options.web()? })?;
    let crawler = options.crawler(setup, place, "good", &alone)?;
    setup.say(format!("the {plain} good hosts alone"));
    crawler.run(RUN_MAX)?;
    let finish = |verdict: &Verdict| verdict.kinds.get("plain").and_then(|kind| kind.finish_s).unwrap_or(0.0);
    let (without_s, with_s) = (finish(&alone.verdict()), finish(with_bad));
    outcome.figure("good_hosts", plain);
    outcome.figure("good_hosts_alone_s", without_s);
    outcome.figure("good_hosts_among_bad_s", with_s);
    let slower = with_s / without_s;
    let met = slower <= SLOWER_MAX && with_s > 0.0;
    outcome.bar(
        "time of good hosts, with bad ones about",
        format!("<= {SLOWER_MAX}"),
        format!("{slower:.3}"),
        met,
    );
    Ok(())
}
