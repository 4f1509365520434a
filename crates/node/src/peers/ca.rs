//! A site's authority and the certificates of its agents: what `nephila ca` makes.
//!
//! `DIR/ca` holds the authority, `DIR/agents/NAME` what one agent needs. Each of these directories appears whole or not at
//! all, whatever happens meanwhile, and what is there is never made anew. Keys are ECDSA P-256, and only their owner can read
//! them.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use jiff::civil::Date;
use jiff::{ToSpan, Zoned};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, GeneralSubtree, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, NameConstraints, date_time_ymd,
};

use super::identity::{self, IdentityError};
use super::name::{Name, agent_domain, site_domain};

/// The certificate of the authority.
pub(super) const CA_CERTIFICATE: &str = "ca.pem";
/// The certificate of an agent.
pub(super) const AGENT_CERTIFICATE: &str = "agent.pem";
/// The key of an agent.
pub(super) const AGENT_KEY: &str = "agent.key";
/// The key of the authority.
const CA_KEY: &str = "ca.key";
/// How long the authority is valid.
const CA_YEARS: i32 = 20;
/// How long an agent is valid.
const AGENT_YEARS: i32 = 2;

/// Why certificates could not be made.
#[derive(Debug, thiserror::Error)]
pub enum CaError {
    /// A file or directory could not be made.
    #[error("cannot write {}", .0.display())]
    Write(PathBuf, #[source] io::Error),
    /// A file could not be read.
    #[error("cannot read {}", .0.display())]
    Read(PathBuf, #[source] io::Error),
    /// The authority that is there cannot make agents of this site.
    #[error("{path} is not the authority of site {site}: give the name of its own site, or choose another --out", path = .0.display(), site = .1)]
    OtherSite(PathBuf, Name),
    /// The key of the authority is no key.
    #[error("{} is not a key that `nephila ca` made", .0.display())]
    NotAKey(PathBuf, #[source] rcgen::Error),
    /// What is there does not fit the authority or the agent.
    #[error("{} is not agent {agent} of site {site} by the authority in the same --out: move it away, or choose another --out", .path.display())]
    Foreign {
        /// What does not fit.
        path: PathBuf,
        /// The agent that was asked for.
        agent: Name,
        /// Its site.
        site: Name,
        /// In what way.
        #[source]
        source: Box<IdentityError>,
    },
    /// The certificate of an agent has ended.
    #[error("the certificate in {} is not valid any more: remove that directory and run this again", .0.display())]
    Expired(PathBuf),
    /// A certificate could not be made.
    #[error("cannot make a certificate")]
    Make(#[from] rcgen::Error),
}

/// What was made, or was there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    /// Where the authority is.
    pub ca: PathBuf,
    /// Until when it is valid, if it was made now.
    pub ca_until: Option<Date>,
    /// The agents that were asked for.
    pub agents: Vec<MadeAgent>,
}

/// One agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MadeAgent {
    /// Its name.
    pub name: Name,
    /// What to copy to its machine.
    pub dir: PathBuf,
    /// Until when it is valid, if it was made now.
    pub until: Option<Date>,
}

/// Makes what is missing of a site's authority and of these agents, below `out`.
pub fn make(out: &Path, site: &Name, agents: &[Name]) -> Result<Made, CaError> {
    let today = Zoned::now().date();
    let ca = out.join("ca");
    let dir = out.join("agents");
    fs::create_dir_all(&dir).map_err(|error| CaError::Write(dir.clone(), error))?;
    let mut ca_until = None;
    if !ca.exists() {
        let until = years_from(today, CA_YEARS);
        let key = KeyPair::generate()?;
        let certificate = authority(site, today, until).self_signed(&key)?;
        let files = [(CA_KEY, key.serialize_pem()), (CA_CERTIFICATE, certificate.pem())];
        put_whole(&ca, &files).map_err(|error| CaError::Write(ca.clone(), error))?;
        ca_until = Some(until);
    }
    let mut made = Made { ca: ca.clone(), ca_until, agents: Vec::new() };
    for name in agents {
        let dir = dir.join(name.as_str());
        let until = if dir.exists() { None } else { Some(make_agent(&ca, &dir, name, site, today)?) };
        // Also what was made now: the authority may be another site's.
        let certificate = dir.join(AGENT_CERTIFICATE);
        if let Err(source) = identity::check(&ca.join(CA_CERTIFICATE), &certificate, name, site) {
            if until.is_some() {
                fs::remove_dir_all(&dir).map_err(|error| CaError::Write(dir.clone(), error))?;
                return Err(CaError::OtherSite(ca, site.clone()));
            }
            if matches!(source, IdentityError::Expired(_)) {
                return Err(CaError::Expired(dir));
            }
            let (agent, site, source) = (name.clone(), site.clone(), Box::new(source));
            return Err(CaError::Foreign { path: dir, agent, site, source });
        }
        made.agents.push(MadeAgent { name: name.clone(), dir, until });
    }
    Ok(made)
}

fn make_agent(ca: &Path, dir: &Path, name: &Name, site: &Name, today: Date) -> Result<Date, CaError> {
    let read = |path: &Path| fs::read_to_string(path).map_err(|error| CaError::Read(path.to_owned(), error));
    let (key_path, ca_path) = (ca.join(CA_KEY), ca.join(CA_CERTIFICATE));
    let (key_pem, ca_pem) = (read(&key_path)?, read(&ca_path)?);
    let ca_key = KeyPair::from_pem(&key_pem).map_err(|error| CaError::NotAKey(key_path, error))?;
    // Of the authority's own certificate an issuer needs what is the same whenever it is made.
    let issuer = Issuer::new(authority(site, today, today), ca_key);
    let until = years_from(today, AGENT_YEARS);
    let domain = agent_domain(name, site);
    let mut params = CertificateParams::new(vec![domain.clone()])?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, domain);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    params.use_authority_key_identifier_extension = true;
    set_validity(&mut params, today, until);
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, &issuer)?;
    let files =
        [(AGENT_KEY, key.serialize_pem()), (AGENT_CERTIFICATE, certificate.pem()), (CA_CERTIFICATE, ca_pem)];
    put_whole(dir, &files).map_err(|error| CaError::Write(dir.to_owned(), error))?;
    Ok(until)
}

fn authority(site: &Name, today: Date, until: Date) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, format!("Nephila site {site}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    // Wherever else it might be trusted, it can speak for nobody but its site.
    let within = GeneralSubtree::DnsName(site_domain(site));
    params.name_constraints =
        Some(NameConstraints { permitted_subtrees: vec![within], excluded_subtrees: Vec::new() });
    set_validity(&mut params, today, until);
    params
}

fn set_validity(params: &mut CertificateParams, today: Date, until: Date) {
    let time = |date: Date| {
        date_time_ymd(date.year().into(), date.month().unsigned_abs(), date.day().unsigned_abs())
    };
    // Clocks differ.
    params.not_before = time(today.saturating_sub(1.day()));
    params.not_after = time(until);
}

fn years_from(today: Date, years: i32) -> Date {
    today.saturating_add(years.years())
}

/// Makes a directory with these files, all of it or nothing. Its user alone can read it.
fn put_whole(dir: &Path, files: &[(&str, String)]) -> io::Result<()> {
    let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let private = fs::Permissions::from_mode(0o700);
    let temporary = tempfile::Builder::new().prefix(".new-").permissions(private).tempdir_in(parent)?;
    for (name, text) in files {
        let mode = if name.ends_with(".key") { 0o600 } else { 0o644 };
        let path = temporary.path().join(name);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
    }
    File::open(temporary.path())?.sync_all()?;
    // Fails if somebody else has put one there meanwhile.
    fs::rename(temporary.path(), dir)?;
    // It is no longer where it would be removed.
    let _ = temporary.keep();
    File::open(parent)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::super::Identity;
    use super::*;

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    fn files(dir: &Path) -> Vec<(PathBuf, String)> {
        let mut found = Vec::new();
        for entry in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
            match entry.is_dir() {
                true => found.extend(files(&entry)),
                false => found.push((entry.clone(), fs::read_to_string(entry).unwrap())),
            }
        }
        found.sort();
        found
    }

    #[test]
    fn what_is_there_is_kept() {
        let temporary = tempfile::tempdir().unwrap();
        let out = temporary.path().join("site");
        let (site, a, b) = (name("paris"), name("a"), name("b"));
        let first = make(&out, &site, std::slice::from_ref(&a)).unwrap();
        assert!(first.ca_until.is_some() && first.agents[0].until.is_some());
        assert!(first.ca_until > first.agents[0].until);
        let before = files(&out);
        let second = make(&out, &site, &[a.clone(), b.clone()]).unwrap();
        assert!(second.ca_until.is_none() && second.agents[0].until.is_none());
        assert!(second.agents[1].until.is_some());
        let after = files(&out);
        assert!(before.iter().all(|file| after.contains(file)));
        assert_eq!((before.len(), after.len()), (5, 8));
        for (path, _) in after.iter().filter(|(path, _)| path.extension().is_some_and(|end| end == "key")) {
            assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600, "{path:?}");
            assert_eq!(
                fs::metadata(path.parent().unwrap()).unwrap().permissions().mode() & 0o777,
                0o700,
                "{path:?}"
            );
        }
        for (agent, made) in [(&a, &second.agents[0]), (&b, &second.agents[1])] {
            let identity = Identity::read(&made.dir).unwrap();
            assert_eq!((identity.agent(), identity.site()), (agent, &site));
            assert!(!identity.expires_soon());
        }
    }

    #[test]
    fn nothing_of_another_site_is_made_or_taken() {
        let temporary = tempfile::tempdir().unwrap();
        let out = temporary.path();
        make(out, &name("paris"), &[name("a")]).unwrap();
        let before = files(out);
        // The authority is that of another site; the agent is there already, or is not.
        let there = make(out, &name("rome"), &[name("a")]).unwrap_err();
        assert!(matches!(there, CaError::Foreign { .. }), "{there:?}");
        let not_there = make(out, &name("rome"), &[name("b")]).unwrap_err();
        assert!(matches!(not_there, CaError::OtherSite(..)), "{not_there:?}");
        assert_eq!(files(out), before);
        // What is there is no agent, or another one.
        fs::create_dir(out.join("agents/c")).unwrap();
        fs::rename(out.join("agents/a"), out.join("agents/d")).unwrap();
        for agent in ["c", "d"] {
            let error = make(out, &name("paris"), &[name(agent)]).unwrap_err();
            assert!(matches!(error, CaError::Foreign { .. }), "{error:?}");
        }
    }

    #[test]
    fn an_identity_that_cannot_be_used_says_why() {
        let temporary = tempfile::tempdir().unwrap();
        let (one, two) = (temporary.path().join("1"), temporary.path().join("2"));
        for out in [&one, &two] {
            make(out, &name("paris"), &[name("a"), name("b")]).unwrap();
        }
        let spoilt = |spoil: &dyn Fn(&Path)| {
            let dir = tempfile::tempdir().unwrap();
            for file in [CA_CERTIFICATE, AGENT_CERTIFICATE, AGENT_KEY] {
                fs::copy(one.join("agents/a").join(file), dir.path().join(file)).unwrap();
            }
            Identity::read(dir.path()).unwrap();
            spoil(dir.path());
            Identity::read(dir.path()).unwrap_err().to_string()
        };
        let copy = |from: &Path, file: &'static str| {
            let from = from.join(file);
            move |dir: &Path| {
                fs::copy(&from, dir.join(file)).unwrap();
            }
        };
        let other = two.join("agents/a");
        type Spoil = Box<dyn Fn(&Path)>;
        let cases: Vec<(Spoil, &str, &str)> = vec![
            (Box::new(|dir| fs::remove_file(dir.join(AGENT_KEY)).unwrap()), "cannot read", AGENT_KEY),
            (
                Box::new(|dir| fs::write(dir.join(CA_CERTIFICATE), "dear").unwrap()),
                "no certificate",
                CA_CERTIFICATE,
            ),
            (Box::new(|dir| fs::write(dir.join(AGENT_KEY), "dear").unwrap()), "no private key", AGENT_KEY),
            (
                Box::new(|dir| {
                    fs::set_permissions(dir.join(AGENT_KEY), fs::Permissions::from_mode(0o644)).unwrap();
                }),
                "chmod 600",
                AGENT_KEY,
            ),
            (Box::new(copy(&other, CA_CERTIFICATE)), "cannot be used with", AGENT_CERTIFICATE),
            (Box::new(copy(&other, AGENT_CERTIFICATE)), "cannot be used with", AGENT_CERTIFICATE),
            (Box::new(copy(&one.join("agents/b"), AGENT_KEY)), "cannot be used with", AGENT_CERTIFICATE),
        ];
        for (spoil, what, file) in cases {
            let said = spoilt(&*spoil);
            assert!(said.contains(what) && said.contains(file), "{said}");
        }
    }
}
