//! Several sites of agents on this machine, each with an authority of its own, and the emulated wide area between them.

use std::{
    fmt::Write as _,
    fs,
    ops::Range,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, ensure};
use nephila_node::control::Request;
use serde_json::Value;

use super::{Setup, agents::Agents};
use crate::{
    wan::{Relay, Wan, Way},
    web::{Web, asker},
};

/// What several sites are together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Sites that each have their own hosts.
    Federation,
    /// One site that is stretched over all places, in which each URL has its own.
    Stretched,
    /// The same, whose places remember what they have sent to each other.
    Remembering,
}

/// How long the agents of a site may take to find each other.
const BEGIN_MAX: Duration = Duration::from_secs(60);

/// What sites there are to be.
pub(crate) struct SitesPlan<'a> {
    /// What they are called. The first is told the seeds.
    pub(crate) names: &'a [String],
    /// Agents of each.
    pub(crate) agents: usize,
    /// Settings of all agents, in TOML.
    pub(crate) settings: &'a str,
    /// Domains, and the sites that they belong to.
    pub(crate) pinned: &'a [(String, String)],
    /// Where they are, in degrees north and east, if each host is the nearest site's.
    pub(crate) at: Option<&'a [(f64, f64)]>,
    /// What they are together.
    pub(crate) shape: Shape,
    /// The servers of a cluster in which each of them has a store that its agents share, if they do.
    pub(crate) store: Option<&'a [String]>,
    /// What the way between two sites is like.
    pub(crate) way: &'a dyn Fn(usize, usize) -> Way,
}

/// The ways from one site to the gateways of another.
struct WayTo {
    from: usize,
    to: usize,
    relays: Vec<Relay>,
}

/// All sites.
pub(crate) struct Sites {
    dir: PathBuf,
    names: Vec<String>,
    sites: Vec<Agents>,
    /// The one that is lost for good.
    lost: Option<usize>,
    ways: Vec<WayTo>,
    /// Carries what passes between them.
    _wan: Wan,
}

impl Sites {
    /// Makes the sites below `dir`, and the ways between them. None is started.
    pub(crate) fn found(setup: &Setup, plan: &SitesPlan<'_>, dir: &Path, web: &Web) -> anyhow::Result<Sites> {
        let mut sites = Vec::new();
        for (index, name) in plan.names.iter().enumerate() {
            let dir = dir.join(name);
            fs::create_dir_all(&dir)?;
            let list = dir.join("federation.toml");
            let bind = asker(index as u32);
            let store = plan
                .store
                .map(|nodes| format!("store = \"redis://{}\"\nstore-name = {name:?}\n", nodes.join(",")));
            let settings = format!(
                "{}{}scope = \"any\"\nfederation = {list:?}\nbind-address = \"{bind}\"\n",
                plan.settings,
                store.unwrap_or_default()
            );
            let seeds = if index == 0 { web.seeds() } else { Vec::new() };
            let count = (plan.agents, plan.agents);
            sites.push(Agents::of_site(setup, &dir, web, count, &settings, (name, &seeds))?);
        }
        let places = 0..plan.names.len();
        let has_packets =
            places.clone().any(|from| places.clone().any(|to| (plan.way)(from, to).has_packets()));
        let wan = if has_packets { Wan::of_packets()? } else { Wan::start()? };
        let mut ways = Vec::new();
        for (from, name) in plan.names.iter().enumerate() {
            let mut list = match plan.shape {
                Shape::Federation => "version = 1\n",
                Shape::Stretched => "version = 1\nstretched = true\n",
                Shape::Remembering => "version = 1\nstretched = true\nremembering = true\n",
            }
            .to_owned();
            if plan.at.is_some() {
                list += "partitioner = \"geography\"\n";
            }
            for (to, agents) in sites.iter().enumerate() {
                let gateways = agents.list.iter().map(|agent| agent.gateway.clone());
                let gateways = if to == from {
                    gateways.collect::<Vec<_>>()
                } else {
                    let open = |gateway| wan.open(gateway, (plan.way)(from, to));
                    let relays = gateways.map(open).collect::<Result<Vec<_>, _>>()?;
                    let addresses = relays.iter().map(|relay| relay.address.clone()).collect();
                    ways.push(WayTo { from, to, relays });
                    addresses
                };
                let (name, ca) = (&plan.names[to], dir.join(&plan.names[to]).join("ca/ca/ca.pem"));
                // Writing to a String cannot fail.
                let _ = writeln!(list, "[[site]]\nname = {name:?}\ngateways = {gateways:?}\nca = {ca:?}");
                if let Some((north, east)) = plan.at.and_then(|at| at.get(to)) {
                    let _ = writeln!(list, "at = [{north:?}, {east:?}]");
                }
            }
            list += "[pinned]\n";
            for (domain, site) in plan.pinned {
                let _ = writeln!(list, "{domain:?} = {site:?}");
            }
            fs::write(dir.join(name).join("federation.toml"), list)?;
        }
        let (dir, names) = (dir.to_owned(), plan.names.to_vec());
        Ok(Sites { dir, names, sites, lost: None, ways, _wan: wan })
    }

    /// Starts all agents, and waits until those of each site have found each other.
    pub(crate) fn start(&mut self) -> anyhow::Result<()> {
        for site in &mut self.sites {
            (0..site.list.len()).try_for_each(|index| site.start(index))?;
        }
        self.sites.iter_mut().try_for_each(|site| site.wait_for_site(BEGIN_MAX))
    }

    /// Why the crawl is not done yet, if it is not. An error if an agent has ended.
    pub(crate) fn unfinished(&mut self) -> anyhow::Result<Option<String>> {
        for site in &mut self.sites {
            let ended = site.ended()?;
            ensure!(ended.is_empty(), "an agent ended by itself: {}", ended.join("\n"));
        }
        let left = self.sites.iter().enumerate().filter(|(site, _)| Some(*site) != self.lost);
        Ok(left.map(|(_, site)| site).find_map(Agents::unfinished))
    }

    /// Cuts sites off from all others, or lets them be reached again.
    pub(crate) fn cut(&self, sites: &Range<usize>, is_cut: bool) {
        for way in self.ways.iter().filter(|way| sites.contains(&way.from) != sites.contains(&way.to)) {
            way.relays.iter().for_each(|relay| relay.cut(is_cut));
        }
    }

    /// Takes a site away for good: its agents are killed, the operators of all others write that it is gone, and start theirs
    /// again. Says how many pages it had fetched.
    pub(crate) fn lose(&mut self, site: usize) -> anyhow::Result<u64> {
        let pages = |status: Option<Value>| status.and_then(|status| status["totals"]["pages"].as_u64());
        let lost = &mut self.sites[site];
        // One of its agents answers for all.
        let fetched = pages(lost.running().find_map(|index| lost.ask(index, &Request::Status)));
        for index in 0..lost.list.len() {
            lost.kill(index)?;
        }
        let name = self.names[site].clone();
        let others: Vec<usize> = (0..self.sites.len()).filter(|other| *other != site).collect();
        for other in others {
            let list = self.dir.join(&self.names[other]).join("federation.toml");
            let agents = &mut self.sites[other];
            let forgets = agents.forget_site(&name, &list)?;
            ensure!(forgets.success(), "nephila federation forget: {forgets}");
            let ended = agents.end()?;
            ensure!(ended.is_empty(), "agents did not end in order: {}", ended.join("\n"));
            (0..agents.list.len()).try_for_each(|index| agents.start(index))?;
            agents.wait_for_site(BEGIN_MAX)?;
        }
        self.lost = Some(site);
        fetched.context("the site that is to be lost does not answer")
    }

    /// Gives all agents the next version of the list, in which these domains belong to these sites. Of each site all end before
    /// one begins with it.
    pub(crate) fn change(&mut self, pinned: &[(String, String)]) -> anyhow::Result<()> {
        for (site, name) in self.sites.iter_mut().zip(&self.names) {
            let ended = site.end()?;
            ensure!(ended.is_empty(), "agents did not end in order: {}", ended.join("\n"));
            let path = self.dir.join(name).join("federation.toml");
            let mut list = fs::read_to_string(&path)?.replacen("version = 1", "version = 2", 1);
            for (domain, site) in pinned {
                // Writing to a String cannot fail.
                let _ = writeln!(list, "{domain:?} = {site:?}");
            }
            fs::write(&path, list)?;
            (0..site.list.len()).try_for_each(|index| site.start(index))?;
            site.wait_for_site(BEGIN_MAX)?;
        }
        Ok(())
    }

    /// Bytes from one site to another that went there and came back.
    pub(crate) fn bytes(&self) -> Vec<(usize, usize, (u64, u64))> {
        let sum =
            |way: &WayTo| way.relays.iter().map(Relay::bytes).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        self.ways.iter().map(|way| (way.from, way.to, sum(way))).collect()
    }

    /// What each site says of itself, by one of its agents.
    pub(crate) fn statuses(&self) -> Vec<Option<Value>> {
        let status = |site: &Agents| site.running().find_map(|index| site.ask(index, &Request::Status));
        self.sites.iter().map(status).collect()
    }

    /// What the agents have counted, by its name: `sent`, URLs that were delivered to other sites; `claimed`, hosts that were
    /// another's.
    pub(crate) fn total(&self, name: &str) -> u64 {
        let total = |status: Option<Value>| status.and_then(|status| status["totals"][name].as_u64());
        self.statuses().into_iter().filter_map(total).sum()
    }

    /// How many sites say that a URL was fetched, and how many of these because another one says so.
    pub(crate) fn fetched(&self, url: &str) -> (usize, usize) {
        let request = Request::Why { url: url.to_owned() };
        let why = |site: &Agents| site.running().find_map(|index| site.ask(index, &request));
        let fetched = self.sites.iter().filter_map(why).filter(|why| why["state"] == "fetched");
        let by_others = fetched.map(|why| usize::from(why["answered_by"].is_string()));
        by_others.fold((0, 0), |(all, others), by_other| (all + 1, others + by_other))
    }

    /// Whether a site has fetched a URL itself.
    pub(crate) fn has_fetched(&self, site: usize, url: &str) -> bool {
        let request = Request::Why { url: url.to_owned() };
        let agents = &self.sites[site];
        let why = agents.running().find_map(|index| agents.ask(index, &request));
        why.is_some_and(|why| why["state"] == "fetched" && !why["answered_by"].is_string())
    }

    /// Has all agents end in order; says which did not.
    pub(crate) fn end(&mut self) -> anyhow::Result<Vec<String>> {
        let mut disorderly = Vec::new();
        for site in &mut self.sites {
            disorderly.extend(site.end()?);
        }
        Ok(disorderly)
    }
}
