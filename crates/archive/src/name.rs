//! The names of WARC files and of what lies beside them.

/// `PREFIX-TIMESTAMP-SERIAL-SHARD`, and which kind of file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileName {
    stem: String,
    pub(crate) serial: u32,
    pub(crate) shard: u16,
    gzip: bool,
}

impl FileName {
    pub(crate) fn new(prefix: &str, timestamp: &str, serial: u32, shard: u16, gzip: bool) -> FileName {
        FileName { stem: format!("{prefix}-{timestamp}-{serial:05}-{shard:03}"), serial, shard, gzip }
    }

    /// Reads the name of a WARC file; the flag says whether it is still open.
    pub(crate) fn parse(name: &str) -> Option<(FileName, bool)> {
        let (name, open) = match name.strip_suffix(".open") {
            Some(name) => (name, true),
            None => (name, false),
        };
        let (stem, gzip) = match name.strip_suffix(".warc.gz") {
            Some(stem) => (stem, true),
            None => (name.strip_suffix(".warc")?, false),
        };
        FileName::from_stem(stem, gzip).map(|name| (name, open))
    }

    /// Whether this is the index of one WARC file, as opposed to a merged one.
    pub(crate) fn is_index(name: &str) -> bool {
        name.strip_suffix(".cdxj").is_some_and(|stem| FileName::from_stem(stem, true).is_some())
    }

    /// Whether this is what an index leaves behind when it is interrupted.
    pub(crate) fn is_leftover(name: &str) -> bool {
        name.rsplit_once('.').is_some_and(|(index, suffix)| {
            (suffix == "tmp" || suffix.starts_with("run")) && index.ends_with(".cdxj")
        })
    }

    fn from_stem(stem: &str, gzip: bool) -> Option<FileName> {
        let mut parts = stem.rsplitn(4, '-');
        let (shard, serial) = (parts.next()?, parts.next()?);
        let (timestamp, prefix) = (parts.next()?, parts.next()?);
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if prefix.is_empty() || ![shard, serial, timestamp].into_iter().all(digits) {
            return None;
        }
        Some(FileName {
            stem: stem.to_owned(),
            serial: serial.parse().ok()?,
            shard: shard.parse().ok()?,
            gzip,
        })
    }

    /// The name once the file is finished.
    pub(crate) fn warc(&self) -> String {
        format!("{}.{}", self.stem, if self.gzip { "warc.gz" } else { "warc" })
    }

    /// The name while it is being written.
    pub(crate) fn open(&self) -> String {
        self.warc() + ".open"
    }

    /// The name of its index.
    pub(crate) fn index(&self) -> String {
        format!("{}.cdxj", self.stem)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        let name = FileName::new("my-crawl", "20260102030405", 7, 3, true);
        assert_eq!(name.warc(), "my-crawl-20260102030405-00007-003.warc.gz");
        assert_eq!(FileName::parse(&name.warc()), Some((name.clone(), false)));
        assert_eq!(FileName::parse(&name.open()), Some((name.clone(), true)));
        assert!(FileName::is_index(&name.index()));
        let plain = FileName::new("x", "20260102030405", 123_456, 3, false);
        assert_eq!(FileName::parse("x-20260102030405-123456-003.warc"), Some((plain, false)));
    }

    #[test]
    fn other_names_are_left_alone() {
        for name in
            ["index.cdxj", "a.warc.gz", "a-b-1-2.warc.gz", "-1-2-3.warc.gz", "x-1-99999999999-1.warc", ""]
        {
            assert_eq!(FileName::parse(name), None, "{name}");
            assert!(!FileName::is_index(name), "{name}");
        }
        assert!(FileName::is_leftover("x-1-2-3.cdxj.run4"));
        assert!(FileName::is_leftover("index.cdxj.tmp"));
        assert!(!FileName::is_leftover("x-1-2-3.cdxj"));
    }
}
