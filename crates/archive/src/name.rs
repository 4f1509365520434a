//! The names of WARC files and of what lies beside them.

use crate::pack::Compression;

/// `PREFIX-TIMESTAMP-SERIAL-SHARD`, and which kind of file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileName {
    stem: String,
    pub(crate) serial: u32,
    pub(crate) shard: u16,
    compression: Compression,
}

impl FileName {
    pub(crate) fn new(
        prefix: &str,
        timestamp: &str,
        serial: u32,
        shard: u16,
        compression: Compression,
    ) -> FileName {
        FileName { stem: format!("{prefix}-{timestamp}-{serial:05}-{shard:03}"), serial, shard, compression }
    }

    /// Reads the name of a WARC file; the flag says whether it is still open.
    pub(crate) fn parse(name: &str) -> Option<(FileName, bool)> {
        let (name, open) = match name.strip_suffix(".open") {
            Some(name) => (name, true),
            None => (name, false),
        };
        let all = [Compression::None, Compression::Gzip, Compression::Zstd];
        let (stem, compression) =
            all.into_iter().find_map(|one| Some((name.strip_suffix(one.suffix())?, one)))?;
        FileName::from_stem(stem, compression).map(|name| (name, open))
    }

    /// Whether this is the index of one WARC file, as opposed to a merged one.
    pub(crate) fn is_index(name: &str) -> bool {
        name.strip_suffix(".cdxj").is_some_and(|stem| FileName::from_stem(stem, Compression::None).is_some())
    }

    /// Whether this is what an index leaves behind when it is interrupted.
    pub(crate) fn is_leftover(name: &str) -> bool {
        name.rsplit_once('.').is_some_and(|(index, suffix)| {
            (suffix == "tmp" || suffix.starts_with("run")) && index.ends_with(".cdxj")
        })
    }

    fn from_stem(stem: &str, compression: Compression) -> Option<FileName> {
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
            compression,
        })
    }

    /// The name once the file is finished.
    pub(crate) fn warc(&self) -> String {
        format!("{}{}", self.stem, self.compression.suffix())
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
        let name = FileName::new("my-crawl", "20260102030405", 7, 3, Compression::Gzip);
        assert_eq!(name.warc(), "my-crawl-20260102030405-00007-003.warc.gz");
        assert_eq!(FileName::parse(&name.warc()), Some((name.clone(), false)));
        assert_eq!(FileName::parse(&name.open()), Some((name.clone(), true)));
        assert!(FileName::is_index(&name.index()));
        for (suffix, compression) in [("warc", Compression::None), ("warc.zst", Compression::Zstd)] {
            let name = FileName::new("x", "20260102030405", 123_456, 3, compression);
            let text = format!("x-20260102030405-123456-003.{suffix}");
            assert_eq!(name.warc(), text);
            assert_eq!(FileName::parse(&text), Some((name, false)));
        }
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
