//! What every disk must do the same way, run on the real one and on the simulated one.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{ErrorKind, Read};
use std::path::Path;

use nephila_disk::{Cursor, Disk, Mode, RealDisk, SimDisk};

fn contract(disk: &dyn Disk, root: &Path) {
    let dir = root.join("x/y");
    assert!(disk.list(&dir).unwrap().is_empty(), "a missing directory has no files");
    let (a, b) = (dir.join("a"), dir.join("b"));
    assert_eq!(disk.open(&a, Mode::Create).err().unwrap().kind(), ErrorKind::NotFound);
    disk.create_dir_all(&dir).unwrap();
    disk.create_dir_all(&dir).unwrap();
    assert_eq!(disk.open(&a, Mode::Read).err().unwrap().kind(), ErrorKind::NotFound);

    let mut file = disk.open(&a, Mode::Create).unwrap();
    assert_eq!(disk.open(&a, Mode::Create).err().unwrap().kind(), ErrorKind::AlreadyExists);
    file.append(b"hello ").unwrap();
    file.append(b"").unwrap();
    let mut again = disk.open(&a, Mode::Append).unwrap();
    again.append(b"world").unwrap();
    file.append(b"!").unwrap();
    file.sync().unwrap();
    assert_eq!(file.len().unwrap(), 12);

    let mut text = String::new();
    Cursor::new(disk.open(&a, Mode::Read).unwrap(), 6).read_to_string(&mut text).unwrap();
    assert_eq!(text, "world!");
    let mut buf = [0; 4];
    assert_eq!(file.read_at(10, &mut buf).unwrap(), 2);
    assert_eq!(file.read_at(99, &mut buf).unwrap(), 0);

    file.truncate(5).unwrap();
    file.append(b"?").unwrap();
    file.truncate(8).unwrap();
    assert_eq!(file.read_at(4, &mut buf).unwrap(), 4);
    assert_eq!(&buf, b"o?\0\0");
    assert!(disk.open(&a, Mode::Read).unwrap().append(b"x").is_err());

    disk.open(&b, Mode::Append).unwrap().append(b"other").unwrap();
    assert_eq!(disk.list(&dir).unwrap(), [a.clone(), b.clone()]);
    disk.rename(&a, &b).unwrap();
    disk.sync_dir(&dir).unwrap();
    assert_eq!(disk.list(&dir).unwrap(), std::slice::from_ref(&b));
    assert_eq!(disk.open(&b, Mode::Read).unwrap().len().unwrap(), 8);
    assert_eq!(disk.rename(&a, &b).err().unwrap().kind(), ErrorKind::NotFound);

    disk.remove(&b).unwrap();
    assert_eq!(disk.remove(&b).err().unwrap().kind(), ErrorKind::NotFound);
    file.append(b"still open").unwrap();
    assert_eq!(file.len().unwrap(), 18);
    assert!(disk.list(root).unwrap().is_empty(), "directories are not listed");
}

#[test]
fn the_real_disk_keeps_the_contract() {
    let root = tempfile::tempdir().unwrap();
    contract(&RealDisk, root.path());
}

#[test]
fn the_simulated_disk_keeps_the_contract() {
    contract(&SimDisk::new(1), Path::new("/sim"));
}
