//! What was written and does not count any more, because the archive lacks it or the reason of a failure is gone.

use nephila_core::record::{Record, Settled};
use nephila_core::site::AgentId;
use nephila_core::url::identify;
use redis::{Value, cmd};

use super::commit::Plan;
use super::keys::bucket_of;
use super::values::{CHUNK_ENTRIES, Entry, Seen, all_bytes, pack, place_of};
use super::{RedisStore, partition_of};
use crate::embedded::{capture_of, forgive};
use crate::{Reader, Result, without_capture};

impl RedisStore {
    /// Passes on the records of a partition in their order, each with which agent has its capture.
    pub fn each_record(
        &mut self,
        partition: u16,
        each: &mut dyn FnMut(Record, Option<AgentId>),
    ) -> Result<()> {
        let records = self.partition(partition)?.sums.records;
        for chunk in 0..records.div_ceil(CHUNK_ENTRIES as u64) {
            let get = cmd("LRANGE").arg(self.keys.records(partition, chunk)).arg(0).arg(-1).clone();
            let answer = self.cluster.get_mut().read([(partition, get)])?.pop().unwrap_or(Value::Nil);
            for (at, entry) in (1..).zip(all_bytes(answer)?) {
                let place = place_of(partition, chunk * CHUNK_ENTRIES as u64 + at);
                let (record, whose) = self.unpack_record(place, &entry)?;
                each(record, whose);
            }
        }
        Ok(())
    }

    /// Has a reader look back at every record of the partitions that are held. What does not count any more is due again.
    ///
    /// Takes as long as there are records. To be done when the archive lacks something, and before anything is taken.
    pub fn look_back(&mut self, reader: &mut dyn Reader) -> Result<()> {
        for (partition, records) in
            self.partitions.iter().map(|(number, of)| (*number, of.sums.records)).collect::<Vec<_>>()
        {
            for chunk in 0..records.div_ceil(CHUNK_ENTRIES as u64) {
                let get = cmd("LRANGE").arg(self.keys.records(partition, chunk)).arg(0).arg(-1).clone();
                let answer = self.cluster.get_mut().read([(partition, get)])?.pop().unwrap_or(Value::Nil);
                let count = all_bytes(answer)?.len() as u64;
                for at in 0..count {
                    self.look_back_once(place_of(partition, chunk * CHUNK_ENTRIES as u64 + at + 1), reader)?;
                }
            }
        }
        self.flush()
    }

    fn look_back_once(&mut self, place: u64, reader: &mut dyn Reader) -> Result<()> {
        let mut record = self.read_record(place)?.0;
        let mut was = None;
        if let Some(pointer) = capture_of(&record)
            && !reader.holds(&pointer)
        {
            was = without_capture(&mut record);
        }
        was = was.or_else(|| forgive(&mut record, &|failure| reader.forgives(failure)));
        if was.is_some()
            && let Record::Settled(settled) = &record
            && !self.unsettle(place, settled)?
        {
            // It was tried again since.
            was = None;
        }
        let mut failed = None;
        let mut kept = |host: &_| match self.loaded(host) {
            Ok(record) => record.memo,
            Err(error) => {
                failed = Some(error);
                None
            }
        };
        reader.look_back(place, &record, was.as_ref(), &mut kept);
        failed.map_or(Ok(()), Err)
    }

    /// Has a URL wait for another attempt, if its last one is that of this place.
    fn unsettle(&mut self, place: u64, settled: &Settled) -> Result<bool> {
        let Some((host, print)) = identify(&settled.url) else { return Ok(false) };
        let mut record = self.loaded(&host)?;
        if self.seen_and_taken(&host, &record, &print.0)?.0 != Some(Seen::Done(place)) {
            return Ok(false);
        }
        let number = partition_of(&host);
        let mut plan = Plan::default();
        self.plan_instead(place, &Record::Settled(settled.clone()), &mut plan)?;
        let Settled { url, depth, how, attempts, found_in, .. } = settled.clone();
        let entry = Entry { url, depth, how, redirects: 0, attempts, found_in };
        self.plan_deferred(&host, &mut record, settled.at.0, entry, &mut plan)?;
        let bucket = self.keys.bucket(&host, bucket_of(&print.0, record.buckets));
        plan.set_field(bucket, &print.0, pack(&Seen::Tried(place))?);
        record.settled = record.settled.saturating_sub(1);
        plan.removed.settled += 1;
        self.commit(number, plan, vec![(host, record)])?;
        Ok(true)
    }
}
