//! `nephila demo`: a small synthetic web and a crawl of it, on this machine alone: by three sites (`sites`), or by one agent.
//!
//! The hosts are a choice of those that show something within half a minute; every duration is short. The crawl is an
//! ordinary one, in a directory that can be looked at afterwards.

mod sites;

use std::path::{Path, PathBuf};

use anyhow::Context;
use nephila_node::config::{Config, Layer, Mistakes};
use nephila_node::directory::{Directory, shell_word};
use nephila_node::display::{Display, Kind};
use nephila_node::summary::Summary;
use nephila_node::{crawl, seeds};

pub use self::sites::{SitesDemo, demo as demo_of_sites};
use crate::web::{self, Kinds, Verdict, WebConfig};

/// The kinds of host that are shown.
const KINDS: &str = "plain,moved,redirects,redirect-loops,robots-rules,robots-disallow,robots-404,robots-delay,\
    robots-elsewhere,robots-flips,sitemap,sitemap-index,meta-robots,rel-nofollow,statuses,chunked,coded,bombs,charsets,\
    malformed-html,base-href,spellings,duplicates,repeating-path,deeper,shared,busy-429,retry,cookies,dns-nxdomain,\
    dns-private,tls-expired,dead";

/// Hosts, and pages of an ordinary one.
const HOSTS: u32 = 99;
const PAGES: u32 = 12;

/// What the web's durations are divided by.
const TIME_SCALE: f64 = 200.0;

/// The settings of the crawl, as flags: every duration short, failing hosts soon given up.
const SETTINGS: [(&str, &str); 14] = [
    ("delay", "50ms"),
    ("ip-delay", "20ms"),
    ("backoff-min", "300ms"),
    ("backoff-max", "2s"),
    ("host-give-up", "4s"),
    ("no-such-name-span", "1s"),
    ("retry-pauses", "300ms,3s,18s"),
    ("robots-elsewhere-max", "2s"),
    ("request-timeout", "5s"),
    ("connect-timeout", "1s"),
    ("max-wait", "20s"),
    ("max-host-pages", "200"),
    ("max-time", "2m"),
    ("allow-private", "127.0.0.0/9"),
];

/// How a demonstration went.
pub struct Demo {
    /// What the crawler says.
    pub summary: Summary,
    /// What the web says.
    pub verdict: Verdict,
    /// Where the crawl is.
    pub out: PathBuf,
    /// Something to ask `nephila why` about.
    pub url: String,
}

/// Serves the web, crawls it, and judges the crawl. `out` is a directory that does not exist yet.
pub fn demo(out: Option<&Path>, display: Kind) -> anyhow::Result<Demo> {
    let out = out.map_or_else(free_directory, Path::to_owned);
    let web = serve()?;
    let urls = web.seeds();
    let url = urls.first().cloned().unwrap_or_default();
    let mut config = configure(&web, urls)?;
    config.ca_pem = Some(web.ca_pem.clone().into_bytes());
    let mut mistakes = Mistakes::default();
    let seeds = seeds::read(&config, &mut mistakes);
    mistakes.check()?;
    let (directory, _, seeds) = Directory::open(&out, &config, &seeds)?;
    // Its web goes with it.
    let mut display = Display::new(display, &config).once();
    display.say(&format!(
        "{HOSTS} hosts on 127.0.0.0/9, and a crawl of them in {}. Nobody else is asked anything.",
        out.display()
    ));
    let summary = crawl::run(&config, &directory, seeds, None, &mut display)?;
    display.finish(&summary);
    let verdict = web.verdict();
    web.shutdown();
    Ok(Demo { summary, verdict, out, url })
}

/// Serves the web.
fn serve() -> anyhow::Result<web::Web> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let config = WebConfig {
        hosts: HOSTS,
        pages: PAGES,
        kinds: KINDS.parse::<Kinds>().map_err(anyhow::Error::msg)?,
        time_scale: TIME_SCALE,
        delay_ms: 50,
        ip_delay_ms: 20,
        max_host_pages: 200,
        ..WebConfig::default()
    };
    runtime.block_on(web::serve(config)).context("cannot serve the web")
}

fn configure(web: &web::Web, urls: Vec<String>) -> anyhow::Result<Config> {
    let word = |(name, value): (&str, &str)| (name.to_owned(), vec![value.to_owned()]);
    let mut flags: Vec<(String, Vec<String>)> = SETTINGS.into_iter().map(word).collect();
    flags.push(("dns".to_owned(), vec![web.dns_addr.to_string()]));
    flags.push(("urls".to_owned(), urls));
    let mut mistakes = Mistakes::default();
    let config = Config::build(&[Layer::flags(flags)], &mut mistakes);
    mistakes.check()?;
    Ok(config)
}

/// The first of nephila-demo, nephila-demo-2, ... that does not exist: each demonstration has ports of its own and cannot go
/// on with another.
fn free_directory() -> PathBuf {
    let names = (2..).map(|number| format!("nephila-demo-{number}"));
    std::iter::once("nephila-demo".to_owned())
        .chain(names)
        .map(PathBuf::from)
        .find(|path| !path.exists())
        .expect("some number is free")
}

impl Demo {
    /// In words, what the web says and what to do next.
    pub fn text(&self) -> String {
        // As it was called, so that it works where nothing is installed.
        let called = std::env::args().next().unwrap_or_else(|| "nephila".to_owned());
        let binary = shell_word(&called);
        format!(
            "{}  look at it:  {binary} why --out {out} {url}\n               {binary} hosts --out {out}\n  \
             each demonstration starts anew, in a directory of its own\n",
            verdict_words(&self.verdict),
            out = self.out.display(),
            url = self.url,
        )
    }
}

/// What the web says of a crawl, as one line.
fn verdict_words(verdict: &Verdict) -> String {
    format!(
        "the web's verdict: {} of {} expected URLs were served whole (coverage {:.3}), {} of them more than once, {} violations of its \
         rules in {} requests\n",
        verdict.served,
        verdict.expected,
        verdict.coverage,
        verdict.overlap.count,
        verdict.violations_total,
        verdict.requests,
    )
}
