//! The embedded store: on the operating system's files, on a disk that loses and tears what was not synced, and with budgets
//! so small that everything goes through that disk.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use nephila_core::agent::StoredHost;
use nephila_core::record::Record;
use nephila_core::settings::UrlOrder;
use nephila_disk::{Disk, RealDisk, SimDisk};
use nephila_store::{
    Cash, EmbeddedStore, FrontierOptions, Journal, OwnStore as _, Store, StoreJob, StoreLimits,
};

use super::{Harness, order, reader};
use crate::samples::{DIR, MEMO, Random, small, snapshot};

/// What is open, and where.
struct Opened {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    store: EmbeddedStore,
    journal: Journal,
}

impl Opened {
    fn new(disk: Arc<dyn Disk>, dir: &Path, options: FrontierOptions, lost_files: &[u32]) -> Opened {
        let (store, journal) =
            EmbeddedStore::open(Arc::clone(&disk), dir, options, &mut reader(lost_files)).unwrap();
        Opened { disk, dir: dir.to_owned(), store, journal }
    }

    fn write(&mut self, record: &Record) -> u64 {
        let place = self.journal.append(record).unwrap();
        self.journal.flush().unwrap();
        place
    }

    fn save(&mut self) {
        snapshot(&mut self.store, &mut self.journal).unwrap();
    }

    /// What is seen without writing anything is what is there.
    fn compare_with_a_look(&mut self, options: FrontierOptions, lost_files: &[u32]) {
        let disk = Arc::clone(&self.disk);
        let mut look =
            EmbeddedStore::open_read_only(disk, &self.dir, options, &mut reader(lost_files)).unwrap();
        self.store.decide().unwrap();
        let figures = |store: &mut EmbeddedStore| {
            let mut hosts = Vec::new();
            store
                .hosts(&mut |StoredHost { host, known, queued, next, .. }| {
                    hosts.push((host, known, queued, next))
                })
                .unwrap();
            hosts.sort();
            (store.stored().known, store.stored().queued, hosts)
        };
        assert_eq!(figures(&mut look), figures(&mut self.store));
        assert_eq!(look.cash().unwrap(), self.store.cash().unwrap());
    }
}

fn roomy(limits: StoreLimits) -> FrontierOptions {
    FrontierOptions { limits, ..FrontierOptions::default() }
}

pub(crate) struct OnRealDisk {
    dir: tempfile::TempDir,
    opened: Opened,
}

impl Harness for OnRealDisk {
    type Store = EmbeddedStore;

    fn new(_: u64, limits: StoreLimits) -> OnRealDisk {
        let dir = tempfile::tempdir().unwrap();
        let opened = Opened::new(Arc::new(RealDisk), dir.path(), roomy(limits), &[]);
        OnRealDisk { dir, opened }
    }

    fn store(&mut self) -> &mut EmbeddedStore {
        &mut self.opened.store
    }

    fn write(&mut self, record: &Record) -> u64 {
        self.opened.write(record)
    }

    fn save(&mut self) {
        self.opened.save();
    }

    fn restart(&mut self, limits: StoreLimits, lost_files: &[u32]) {
        // Nothing is done when a store is dropped.
        self.opened = Opened::new(Arc::new(RealDisk), self.dir.path(), roomy(limits), lost_files);
    }
}

/// On a disk that loses and tears what was not synced. Begins and ends snapshots whenever it likes.
pub(crate) struct OnSimDisk<const TINY: bool, const CASH: bool> {
    random: Random,
    disk: SimDisk,
    opened: Opened,
    under_way: Option<StoreJob>,
}

impl<const TINY: bool, const CASH: bool> OnSimDisk<TINY, CASH> {
    fn options(random: &mut Random, limits: StoreLimits) -> FrontierOptions {
        let options = if TINY { small(random, limits) } else { roomy(limits) };
        match order(CASH) {
            UrlOrder::BreadthFirst => options,
            order if TINY => FrontierOptions { order, ..options },
            order => options.in_order(order),
        }
    }

    fn end_snapshot(&mut self) {
        if let Some(job) = self.under_way.take() {
            self.opened.store.end_snapshot(job.run().unwrap()).unwrap();
        }
    }
}

impl<const TINY: bool, const CASH: bool> Harness for OnSimDisk<TINY, CASH> {
    type Store = EmbeddedStore;

    const ORDER: UrlOrder = order(CASH);

    fn cash(&mut self) -> Option<Cash> {
        Some(self.opened.store.cash().unwrap())
    }

    fn new(seed: u64, limits: StoreLimits) -> Self {
        let (mut random, disk) = (Random(seed), SimDisk::new(seed));
        let options = Self::options(&mut random, limits);
        let opened = Opened::new(Arc::new(disk.clone()), Path::new(DIR), options, &[]);
        OnSimDisk { random, disk, opened, under_way: None }
    }

    fn store(&mut self) -> &mut EmbeddedStore {
        &mut self.opened.store
    }

    fn write(&mut self, record: &Record) -> u64 {
        if self.random.one_in(6) {
            if self.under_way.is_some() {
                self.end_snapshot();
            } else {
                let Opened { store, journal, .. } = &mut self.opened;
                journal.sync().unwrap();
                self.under_way = Some(store.begin_snapshot(journal.end(), MEMO, u64::MAX).unwrap());
            }
        }
        self.opened.write(record)
    }

    fn save(&mut self) {
        self.end_snapshot();
        self.opened.save();
    }

    /// Ends the process or cuts its power.
    fn restart(&mut self, limits: StoreLimits, lost_files: &[u32]) {
        if let Some(job) = self.under_way.take()
            && self.random.one_in(2)
        {
            // The process ends just when it is durable.
            job.run().unwrap();
        }
        self.disk = if self.random.one_in(2) {
            self.disk.kill()
        } else {
            self.opened.journal.sync().unwrap();
            self.disk.power_cut()
        };
        let options = Self::options(&mut self.random, limits);
        self.opened = Opened::new(Arc::new(self.disk.clone()), Path::new(DIR), options, lost_files);
        if self.random.one_in(3) {
            self.opened.compare_with_a_look(Self::options(&mut self.random, limits), lost_files);
        }
    }
}
