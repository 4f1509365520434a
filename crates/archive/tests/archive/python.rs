//! Other people's tools agree with ours: warcio on the records, cdxj-indexer on the index.

use std::process::Command;
use std::sync::Arc;

use nephila_archive::{WarcWriter, merge};
use nephila_disk::{Disk, RealDisk};

use crate::samples::{all, options, time};

#[test]
fn other_tools_agree() {
    let Some(python) = std::env::var_os("NEPHILA_PYTHON") else {
        println!("skipped: NEPHILA_PYTHON is not set (make test sets it)");
        return;
    };
    for (roll_bytes, gzip) in [(1 << 30, true), (1 << 20, true), (1 << 30, false)] {
        let root = tempfile::tempdir().unwrap();
        let disk: Arc<dyn Disk> = Arc::new(RealDisk);
        let dir = root.path().to_path_buf();
        let (mut writer, _) =
            WarcWriter::open(Arc::clone(&disk), dir.clone(), options(roll_bytes, gzip)).unwrap();
        for (index, sample) in all().iter().enumerate() {
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
}
