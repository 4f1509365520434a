//! The archive of one shard, and the thread that it has unless it is the first.
//!
//! What a shard fetched goes into WARC files of its own. The writer of the journal archives for the first shard itself; for the
//! others a thread does it and passes the record on when its capture is in the kernel's hands. So what is costly about a page,
//! digests and compression, is done by as many threads as there are shards.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use jiff::Timestamp;
use nephila_archive::{Capture, Content, Truncated, WarcWriter};
use nephila_core::agent::Cut;
use nephila_core::record::{Pointer, Record};
use nephila_core::time::Wall;

use crate::fetch::Captured;
use crate::writer::{BATCH_MAX, Job, WriteError};

/// The WARC files of one shard.
pub struct Archive(WarcWriter);

impl Archive {
    /// Writes with this writer.
    pub fn new(warcs: WarcWriter) -> Archive {
        Archive(warcs)
    }

    /// Archives what a job has captured, if anything, and notes in the job where it is. Not durable before
    /// [`Archive::flush`].
    pub(crate) fn archive(&mut self, job: &mut Job, now: Wall) -> Result<(), WriteError> {
        let Some(capture) = job.capture.take() else { return Ok(()) };
        let pointer = self.append(job, capture, now)?;
        match &mut *job.record {
            Record::Settled(settled) => settled.capture = Some(pointer),
            Record::Robots(robots) => robots.capture = Some(pointer),
            _ => {}
        }
        if let Some(attempt) = &mut job.attempt {
            attempt.warc = self.0.file_name();
            attempt.offset = Some(pointer.offset);
        }
        Ok(())
    }

    fn append(&mut self, job: &Job, capture: Captured, now: Wall) -> Result<Pointer, WriteError> {
        let (url, took, via, depth) = match (&*job.record, &job.attempt) {
            (Record::Settled(settled), attempt) => {
                let via = attempt.as_ref().and_then(|attempt| attempt.via.clone());
                (settled.url.as_str(), settled.took, via, settled.depth)
            }
            (Record::Robots(robots), _) => (robots.url.as_str(), robots.took, None, 0),
            _ => unreachable!("only attempts at URLs and robots.txt have captures"),
        };
        let reservation = capture.reservation;
        let mut metadata = Vec::with_capacity(3);
        metadata.extend(via.map(|via| ("via", via)));
        metadata.push(("depth", depth.to_string()));
        metadata.push(("fetchTimeMs", took.as_millis().to_string()));
        let capture = Capture {
            target_uri: url,
            date: timestamp(capture.at),
            ip: Some(capture.address),
            protocol: capture.http2.then_some("h2"),
            request: &capture.request,
            response: capture.response,
            truncated: capture.cut.map(|cut| match cut {
                Cut::Length => Truncated::Length,
                Cut::Time => Truncated::Time,
                Cut::Disconnect => Truncated::Disconnect,
            }),
            metadata: &metadata,
        };
        let at = self.0.append(&capture, timestamp(now))?;
        if let (Content::Memory(buffer), Some(reservation)) = (capture.response, reservation) {
            reservation.leave(buffer);
        }
        Ok(Pointer { shard: at.shard, file: at.file, offset: at.offset, length: at.length })
    }

    /// Hands everything to the kernel.
    pub(crate) fn flush(&mut self) -> Result<(), WriteError> {
        Ok(self.0.flush()?)
    }

    /// Has the disk keep everything.
    pub(crate) fn sync(&mut self) -> Result<(), WriteError> {
        Ok(self.0.sync()?)
    }

    /// Finishes the open file.
    pub(crate) fn close(self) -> Result<(), WriteError> {
        Ok(self.0.close()?)
    }
}

fn timestamp(at: Wall) -> Timestamp {
    Timestamp::from_millisecond(i64::try_from(at.0).unwrap_or(i64::MAX)).unwrap_or(Timestamp::MAX)
}

enum Task {
    Archive(Vec<(Box<Job>, Wall)>),
    /// Answered when everything before it is on the disk.
    Sync(Sender<()>),
    Close,
}

/// An [`Archive`] on a thread of its own.
pub(crate) struct Archiving {
    tasks: Sender<Task>,
    thread: JoinHandle<()>,
    failure: Arc<Mutex<Option<WriteError>>>,
}

/// Has an [`Archiving`] synced.
pub(crate) struct Syncing {
    tasks: Sender<Task>,
    failure: Arc<Mutex<Option<WriteError>>>,
}

impl Archiving {
    /// Starts the thread. Jobs whose captures are archived are passed to `archived`; `failed` is called when nothing more can
    /// be archived, and [`Syncing`] says why.
    pub(crate) fn start(
        archive: Archive,
        archived: impl FnMut(Vec<(Box<Job>, Wall)>) + Send + 'static,
        failed: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<Archiving> {
        let (tasks, received) = channel();
        let failure = Arc::new(Mutex::new(None));
        let noted = Arc::clone(&failure);
        let thread = std::thread::Builder::new().name("archive".into()).spawn(move || {
            if let Err(error) = run(archive, &received, archived) {
                *noted.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                failed();
            }
        })?;
        Ok(Archiving { tasks, thread, failure })
    }

    /// Queues jobs. False once the thread has failed.
    pub(crate) fn archive(&self, jobs: Vec<(Box<Job>, Wall)>) -> bool {
        self.tasks.send(Task::Archive(jobs)).is_ok()
    }

    pub(crate) fn syncing(&self) -> Syncing {
        Syncing { tasks: self.tasks.clone(), failure: Arc::clone(&self.failure) }
    }

    /// Archives what is queued, finishes the file and ends the thread. Whether that went well, [`Syncing`] says.
    pub(crate) fn finish(self) {
        // It has ended already if it failed.
        let _ = self.tasks.send(Task::Close);
        if let Err(panic) = self.thread.join() {
            std::panic::resume_unwind(panic);
        }
    }
}

impl Syncing {
    /// Begins to have everything on the disk that was queued; whoever waits for the answer waits for that.
    pub(crate) fn begin(&self) -> Receiver<()> {
        let (done, answer) = channel();
        // If the thread has ended there is no answer either.
        let _ = self.tasks.send(Task::Sync(done));
        answer
    }

    /// Waits for that. A thread that was finished has everything on the disk.
    pub(crate) fn end(&self, answer: &Receiver<()>) -> Result<(), WriteError> {
        match answer.recv() {
            Ok(()) => Ok(()),
            Err(_) => self.failure().map_or(Ok(()), Err),
        }
    }

    /// Why the thread has failed, said once.
    pub(crate) fn failure(&self) -> Option<WriteError> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

fn run(
    mut archive: Archive,
    tasks: &Receiver<Task>,
    mut archived: impl FnMut(Vec<(Box<Job>, Wall)>),
) -> Result<(), WriteError> {
    let mut batch = Vec::new();
    while let Ok(task) = tasks.recv() {
        let mut next = Some(task);
        let mut closes = false;
        let mut sync = None;
        while let Some(task) = next.take() {
            match task {
                Task::Archive(mut jobs) => {
                    jobs.iter_mut().try_for_each(|(job, now)| archive.archive(job, *now))?;
                    batch.append(&mut jobs);
                }
                Task::Sync(done) => sync = Some(done),
                Task::Close => closes = true,
            }
            if batch.len() < BATCH_MAX && sync.is_none() && !closes {
                next = tasks.try_recv().ok();
            }
        }
        archive.flush()?;
        if !batch.is_empty() {
            archived(std::mem::take(&mut batch));
        }
        if let Some(done) = sync {
            archive.sync()?;
            // Whoever asked may have gone.
            let _ = done.send(());
        }
        if closes {
            break;
        }
    }
    archive.close()
}
