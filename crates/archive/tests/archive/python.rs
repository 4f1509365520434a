//! Other people's tools agree with ours: warcio on the records, cdxj-indexer on the index.

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::Arc;

use nephila_archive::{Compression, WarcWriter, merge};
use nephila_disk::{Disk, RealDisk};
use url::Url;

use crate::samples::{COMPRESSIONS, Sample, all, options, plain, time};

/// Writes samples and lets the script look at them.
fn check(samples: &[Sample], roll_bytes: u64, compression: Compression) {
    let Some(python) = std::env::var_os("NEPHILA_PYTHON") else {
        println!("skipped: NEPHILA_PYTHON is not set (make test sets it)");
        return;
    };
    let root = tempfile::tempdir().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let dir = root.path().to_path_buf();
    let (mut writer, _) =
        WarcWriter::open(Arc::clone(&disk), dir.clone(), options(roll_bytes, compression)).unwrap();
    for (index, sample) in samples.iter().enumerate() {
        sample.append(&mut writer, time(index as i64 * 700)).unwrap();
    }
    writer.close().unwrap();
    merge(&*disk, &dir, &dir.join("index.cdxj")).unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/check_warc.py");
    let output = Command::new(&python).arg(script).arg(&dir).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    println!("{said}");
}

#[test]
fn other_tools_agree_on_records() {
    for (roll_bytes, compression) in
        [1 << 30, 1 << 20].into_iter().flat_map(|roll| COMPRESSIONS.map(|how| (roll, how)))
    {
        check(&all(), roll_bytes, compression);
    }
}

/// Keys of URLs put together from parts that are treated specially, or look as if they were.
#[test]
fn other_tools_agree_on_keys() {
    const HOSTS: &[&str] = &[
        "example.com",
        "www.example.com",
        "WWW23.example.co.uk",
        "www.com",
        "wwww.a.com",
        "www1",
        "1.2.3.4",
        "[::1]",
        "[2001:db8::1]:80",
        "example.com.",
        "a..b.com",
        "b\u{fc}cher.example",
        "user:pw@a.com",
        "a.com:80",
        "a.com:443",
        "a.com:8080",
        "a_b.com",
        "-a.com",
    ];
    const PARTS: &[&str] = &[
        "a",
        "/",
        "//",
        "/./",
        "/../",
        "/..",
        "B",
        "%41",
        "%2f",
        "%2525",
        "%252541",
        "%zz",
        "%",
        "~",
        "\u{e9}",
        "%C3%A9",
        "%ff",
        "%20",
        "+",
        ";",
        ";jsessionid=0123456789abcdefABCDEF0123456789",
        "index.aspx",
        ".aspx",
        "/(a(0123456789abcdefghijklmn))/",
        "/(0123456789ABCDEFghijklmn)/",
        "|",
        "[x]",
        "{x}",
        "^",
        "`",
        "\\",
        "\"",
        "'",
        "<",
        "%23",
        "%3f",
        "%26",
        "%3d",
        "%0a",
        "@",
        ":",
        "$",
        ",",
    ];
    const QUERIES: &[&str] = &[
        "a=1",
        "a",
        "a=",
        "=",
        "&",
        "A=2",
        "b=1&a=1",
        "%61=1",
        "x=%26",
        "x=%25%32%36",
        "?",
        "/",
        "\u{e9}=\u{20ac}",
        "+",
        "'",
        "jsessionid=0123456789abcdefABCDEF0123456789",
        "PHPSESSID=0123456789abcdefABCDEF0123456789",
        "sid=0123456789abcdefABCDEF0123456789",
        "ASPSESSIONIDABCDEFGH=ABCDEFGHIJKLMNOPQRSTUVWX",
        "cfid=1&cftoken=2",
        "xsid=0123456789abcdefABCDEF0123456789",
        "CFID=1&CFTOKEN=",
        "%73id=0123456789abcdefABCDEF0123456789",
    ];
    let mut state = 1_u64;
    let mut below = |limit: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % limit
    };
    let mut urls = BTreeSet::new();
    for _ in 0..4000 {
        let mut url = format!("{}://{}/", ["http", "https"][below(2)], HOSTS[below(HOSTS.len())]);
        for _ in 0..below(5) {
            url.push_str(PARTS[below(PARTS.len())]);
        }
        for index in 0..below(4) {
            url.push(if index == 0 { '?' } else { '&' });
            url.push_str(QUERIES[below(QUERIES.len())]);
        }
        if let Ok(mut url) = Url::parse(&url) {
            url.set_fragment(None);
            urls.insert(url.to_string());
        }
    }
    assert!(urls.len() > 3000, "only {} URLs", urls.len());
    let samples: Vec<Sample> = urls.iter().map(|url| plain(url, b"x")).collect();
    check(&samples, 1 << 30, Compression::Gzip);
}
