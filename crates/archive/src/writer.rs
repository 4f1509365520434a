//! Writing captures into WARC files.
//!
//! Records are packed into a buffer; [`WarcWriter::flush`] hands it to the kernel, [`WarcWriter::sync`] makes it
//! durable. A large body goes to the file while it is packed, so that the buffer stays below a limit. Whatever fails,
//! the file is cut back to its last whole capture before anything else is written to it, and what is in the buffer
//! stays there for another try.

use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;
use nephila_disk::{Disk, File, Mode};
use sha1::{Digest, Sha1};

use crate::Pointer;
use crate::cdxj::{CdxLine, IndexBuilder};
use crate::error::Error;
use crate::name::FileName;
use crate::pack::{Compression, Packer};
use crate::record::{
    Capture, Fields, Ids, Measured, RECORD_END, date_field, digest_field, plain_uri, warc_fields,
};
use crate::recover::{Recovery, recover};

/// How many packed bytes are held before they go to the file.
pub const BUFFER_BYTES_MAX: usize = 1 << 20;

/// How a writer writes.
#[derive(Debug, Clone)]
pub struct Options {
    /// The first part of file names: letters, digits, `.`, `_` and `-`.
    pub prefix: String,
    /// Which of the writers of this directory this is.
    pub shard: u16,
    /// A file that reached this length is finished and a new one started.
    pub roll_bytes: u64,
    /// How to compress.
    pub compression: Compression,
    /// The fields of the warcinfo record that starts each file. `format` and `conformsTo` are added.
    pub info: Vec<(String, String)>,
}

/// Writes the captures of one shard.
pub struct WarcWriter {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    options: Options,
    next_serial: u32,
    packer: Packer,
    ids: Ids,
    file: Option<OpenFile>,
    /// Names in the directory changed since it was synced.
    names_unsynced: bool,
}

impl WarcWriter {
    /// Recovers the directory, which no other writer uses, and starts to write to it.
    pub fn open(
        disk: Arc<dyn Disk>,
        dir: PathBuf,
        options: Options,
    ) -> Result<(WarcWriter, Recovery), Error> {
        let recovery = recover(&disk, &dir)?;
        let writer = WarcWriter::start(disk, dir, options, &recovery)?;
        Ok((writer, recovery))
    }

    /// Starts to write to a directory that [`recover`] has just been run on. For several writers, each with its shard.
    pub fn start(
        disk: Arc<dyn Disk>,
        dir: PathBuf,
        options: Options,
        recovery: &Recovery,
    ) -> Result<WarcWriter, Error> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        if options.prefix.is_empty() || !options.prefix.bytes().all(plain) {
            return Err(Error::Options(
                "the prefix of WARC files may hold letters, digits, '.', '_' and '-' only",
            ));
        }
        Ok(WarcWriter {
            next_serial: recovery.next_serial(options.shard),
            packer: Packer::new(options.compression),
            ids: Ids::new(),
            file: None,
            names_unsynced: false,
            disk,
            dir,
            options,
        })
    }

    /// Adds a capture: a response record, and request and metadata records that belong to it. `now` dates a new file.
    ///
    /// The record is in the file after the next [`WarcWriter::flush`]. On an error nothing of this capture is kept, and
    /// captures before it are as they were.
    pub fn append(&mut self, capture: &Capture<'_>, now: Timestamp) -> Result<Pointer, Error> {
        let measured = capture.response.measure(capture.request.starts_with(b"HEAD "))?;
        if self.file.as_ref().is_some_and(|file| file.position() >= self.options.roll_bytes) {
            self.roll()?;
        }
        if self.file.is_none() {
            self.file = Some(self.create(now)?);
        }
        let file = self.file.as_mut().expect("made above");
        file.index.make_room()?;
        if file.buffer.len() >= BUFFER_BYTES_MAX {
            file.flush()?;
        }
        file.begin();
        let mut pen = Pen { packer: &mut self.packer, ids: &mut self.ids, file };
        match pen.capture(capture, &measured, self.options.shard) {
            Ok((pointer, line)) => {
                file.captures += 1;
                file.index.push(&line);
                Ok(pointer)
            }
            Err(error) => {
                file.give_up();
                Err(error)
            }
        }
    }

    /// Hands all captures to the kernel: from now on they survive the death of the process.
    pub fn flush(&mut self) -> Result<(), Error> {
        self.file.as_mut().map_or(Ok(()), OpenFile::flush)
    }

    /// Flushes, and makes all captures durable: from now on they survive a power cut.
    ///
    /// After an error nobody knows what the kernel kept: stop, and let the next start find out.
    pub fn sync(&mut self) -> Result<(), Error> {
        if let Some(file) = &mut self.file {
            file.flush()?;
            file.sync()?;
        }
        self.sync_names()
    }

    fn sync_names(&mut self) -> Result<(), Error> {
        if self.names_unsynced {
            self.disk.sync_dir(&self.dir).map_err(Error::io("sync", &self.dir))?;
            self.names_unsynced = false;
        }
        Ok(())
    }

    /// Finishes the file. The archive is then complete without recovery.
    pub fn close(mut self) -> Result<(), Error> {
        self.roll()
    }

    /// Bytes that a flush would hand over.
    pub fn buffered_bytes(&self) -> usize {
        self.file.as_ref().map_or(0, |file| file.buffer.len())
    }

    /// The final name of the file that the last capture went to.
    pub fn file_name(&self) -> Option<String> {
        self.file.as_ref().map(|file| file.name.warc())
    }

    fn create(&mut self, now: Timestamp) -> Result<OpenFile, Error> {
        let timestamp = now.strftime("%Y%m%d%H%M%S").to_string();
        let Options { prefix, shard, compression, .. } = &self.options;
        let name = FileName::new(prefix, &timestamp, self.next_serial, *shard, *compression);
        let path = self.dir.join(name.open());
        let file = self.disk.open(&path, Mode::Create).map_err(Error::io("create", &path))?;
        self.names_unsynced = true;
        self.next_serial += 1;
        let mut file = OpenFile {
            index: IndexBuilder::new(Arc::clone(&self.disk), self.dir.join(name.index())),
            info_id: self.ids.next(),
            path,
            file,
            name,
            whole_bytes: 0,
            buffer: Vec::new(),
            kept: 0,
            ahead_bytes: 0,
            torn: false,
            captures: 0,
            let_go: 0,
        };
        let mut fields = Fields::new("warcinfo", &file.info_id, &date_field(now));
        fields.push("WARC-Filename", &file.name.warc());
        let own = [
            ("format", "WARC File Format 1.1"),
            ("conformsTo", "http://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/"),
        ];
        let info = self.options.info.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let block = warc_fields(info.chain(own));
        let mut pen = Pen { packer: &mut self.packer, ids: &mut self.ids, file: &mut file };
        pen.record(fields, "application/warc-fields", &block)?;
        Ok(file)
    }

    /// Finishes the current file, if there is one. If that fails it is still there and can be finished later.
    fn roll(&mut self) -> Result<(), Error> {
        let Some(file) = &mut self.file else { return self.sync_names() };
        self.names_unsynced = true;
        if file.captures == 0 {
            self.disk.remove(&file.path).map_err(Error::io("remove", &file.path))?;
        } else {
            file.flush()?;
            file.sync()?;
            // Index first: a file without `.open` has its index, unless a power cut reordered the two names.
            file.index.finish()?;
            let warc = self.dir.join(file.name.warc());
            self.disk.rename(&file.path, &warc).map_err(Error::io("rename", &file.path))?;
        }
        self.file = None;
        self.sync_names()
    }
}

/// A file being written: `whole_bytes` of whole captures in the kernel's hands, then `ahead_bytes` of a capture that is
/// being written, then `buffer`, whose first `kept` bytes are whole captures.
struct OpenFile {
    path: PathBuf,
    file: Box<dyn File>,
    name: FileName,
    info_id: String,
    whole_bytes: u64,
    ahead_bytes: u64,
    buffer: Vec<u8>,
    kept: usize,
    /// Something other than whole captures may follow `whole_bytes` in the file.
    torn: bool,
    captures: u64,
    index: IndexBuilder,
    /// Up to where the file has left the memory.
    let_go: u64,
}

impl OpenFile {
    fn position(&self) -> u64 {
        self.whole_bytes + self.ahead_bytes + self.buffer.len() as u64
    }

    /// Cuts off what a failure left.
    fn mend(&mut self) -> Result<(), Error> {
        if self.torn {
            self.file.truncate(self.whole_bytes).map_err(Error::io("truncate", &self.path))?;
            self.torn = false;
        }
        Ok(())
    }

    /// Writes the first `count` bytes of the buffer to the file.
    fn hand_over(&mut self, count: usize) -> Result<(), Error> {
        self.torn = true;
        self.file.append(&self.buffer[..count]).map_err(Error::io("write", &self.path))?;
        self.buffer.drain(..count);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Error> {
        let count = self.buffer.len();
        let result = self.mend().and_then(|()| if count > 0 { self.hand_over(count) } else { Ok(()) });
        if result.is_ok() {
            self.whole_bytes += count as u64;
            self.torn = false;
        } else {
            // If this fails too, the next call tries again, or recovery does it.
            let _ = self.mend();
        }
        result
    }

    fn sync(&mut self) -> Result<(), Error> {
        self.file.sync().map_err(Error::io("sync", &self.path))?;
        // An archive is written once and read much later: the room that it would take among the pages of the kernel is better
        // used for the store, and new pages are dearer than used ones.
        self.file.let_go(self.let_go..self.whole_bytes);
        self.let_go = self.whole_bytes;
        Ok(())
    }

    /// A capture starts.
    fn begin(&mut self) {
        self.kept = self.buffer.len();
    }

    /// A capture has filled the buffer: writes it out, the captures before it first.
    fn write_ahead(&mut self) -> Result<(), Error> {
        if self.kept > 0 {
            self.mend()?;
            self.hand_over(self.kept)?;
            self.whole_bytes += self.kept as u64;
            self.kept = 0;
            self.torn = false;
        }
        if self.ahead_bytes == 0 {
            self.mend()?;
        }
        let count = self.buffer.len();
        self.hand_over(count)?;
        self.ahead_bytes += count as u64;
        Ok(())
    }

    /// A capture is complete. One that was partly written ahead is written out, so that the file ends with a whole one.
    fn commit(&mut self) -> Result<(), Error> {
        if self.ahead_bytes > 0 {
            self.write_ahead()?;
            self.whole_bytes += self.ahead_bytes;
            self.ahead_bytes = 0;
            self.torn = false;
        }
        Ok(())
    }

    /// A capture failed: forgets it.
    fn give_up(&mut self) {
        self.buffer.truncate(self.kept);
        self.ahead_bytes = 0;
        // If this fails the next call tries again, or recovery does it.
        let _ = self.mend();
    }
}

/// Writes the records of one capture.
struct Pen<'a> {
    packer: &'a mut Packer,
    ids: &'a mut Ids,
    file: &'a mut OpenFile,
}

impl Pen<'_> {
    fn capture(
        &mut self,
        capture: &Capture<'_>,
        measured: &Measured,
        shard: u16,
    ) -> Result<(Pointer, CdxLine), Error> {
        let (uri, date) = (plain_uri(capture.target_uri), date_field(capture.date));
        let ip = capture.ip.map(|ip| ip.to_string());
        let response_id = self.ids.next();
        let request_id = (!capture.request.is_empty()).then(|| self.ids.next());
        let offset = self.file.position();
        let fields = self.fields("response", &response_id, capture, (&uri, &date, ip.as_deref()));
        self.response(fields, capture, measured, request_id.as_deref())?;
        let length = u32::try_from(self.file.position() - offset).map_err(|_| Error::TooLong)?;
        if let Some(id) = request_id {
            let mut fields = self.fields("request", &id, capture, (&uri, &date, ip.as_deref()));
            fields.push("WARC-Concurrent-To", &response_id);
            self.record(fields, "application/http; msgtype=request", capture.request)?;
        }
        if !capture.metadata.is_empty() {
            let id = self.ids.next();
            let mut fields = self.fields("metadata", &id, capture, (&uri, &date, ip.as_deref()));
            fields.push("WARC-Concurrent-To", &response_id);
            let block = warc_fields(capture.metadata.iter().map(|(name, value)| (*name, value.as_str())));
            self.record(fields, "application/warc-fields", &block)?;
        }
        self.file.commit()?;
        let filename = self.file.name.warc();
        let place = (filename.as_str(), offset, CdxLine::length_of(u64::from(length), &filename));
        let head = &measured.split.head;
        let line = CdxLine::new(&uri, &date, head, Some(&measured.payload_digest), place);
        Ok((Pointer { shard, file: self.file.name.serial, offset, length }, line))
    }

    fn response(
        &mut self,
        mut fields: Fields,
        capture: &Capture<'_>,
        measured: &Measured,
        request_id: Option<&str>,
    ) -> Result<(), Error> {
        if let Some(request_id) = request_id {
            fields.push("WARC-Concurrent-To", request_id);
        }
        fields.push("WARC-Payload-Digest", &measured.payload_digest);
        if let Some(truncated) = capture.truncated {
            fields.push("WARC-Truncated", truncated.reason());
        }
        let split = &measured.split;
        self.start(
            fields,
            "application/http; msgtype=response",
            &measured.block_digest,
            split.end - split.start,
        )?;
        capture.response.pieces(split.start..split.end, |piece| self.write(piece).map(|()| true))?;
        self.end()
    }

    fn fields(
        &self,
        kind: &str,
        id: &str,
        capture: &Capture<'_>,
        (uri, date, ip): (&str, &str, Option<&str>),
    ) -> Fields {
        let mut fields = Fields::new(kind, id, date);
        fields.push("WARC-Warcinfo-ID", &self.file.info_id);
        fields.push("WARC-Target-URI", uri);
        if let Some(ip) = ip {
            fields.push("WARC-IP-Address", ip);
        }
        if let Some(protocol) = capture.protocol.filter(|_| kind != "metadata") {
            fields.push("WARC-Protocol", protocol);
        }
        fields
    }

    /// Writes a record whose block is in memory.
    fn record(&mut self, fields: Fields, content_type: &str, block: &[u8]) -> Result<(), Error> {
        self.start(fields, content_type, &digest_field(&Sha1::digest(block)), block.len() as u64)?;
        self.write(block)?;
        self.end()
    }

    fn start(
        &mut self,
        mut fields: Fields,
        content_type: &str,
        digest: &str,
        bytes: u64,
    ) -> Result<(), Error> {
        fields.push("WARC-Block-Digest", digest);
        fields.push("Content-Type", content_type);
        let head = fields.finish(bytes);
        self.packer.start(head.len() as u64 + bytes + RECORD_END.len() as u64);
        self.write(&head)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.packer.pack(bytes, &mut self.file.buffer);
        if self.file.buffer.len() >= BUFFER_BYTES_MAX + self.file.kept {
            self.file.write_ahead()?;
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), Error> {
        self.write(RECORD_END)?;
        self.packer.finish(&mut self.file.buffer);
        Ok(())
    }
}
