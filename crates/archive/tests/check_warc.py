#!/usr/bin/env python3
"""Checks a directory of WARC files with warcio, and their CDXJ indexes with cdxj-indexer.

usage: check_warc.py DIR

For every *.warc, *.warc.gz and *.warc.zst in DIR (the last as plain files, since warcio does not read zstd; each frame has
to be one record):
- each record passes what `warcio check` checks. One failure is expected: warcio hashes a payload with its chunking, so
  the payload digests of chunked responses are checked here, after taking the chunking away;
- NAME.cdxj beside it equals what cdxj-indexer makes of the file, line by line, key and fields.
If DIR/index.cdxj exists, it must be the sorted union of the others.

Prints every failure and 'N passed, N failed'; exits with 1 if anything failed. Needs warcio and cdxj-indexer,
and zstandard for *.warc.zst.
"""

import base64
import hashlib
import io
import json
import logging
import sys
import tempfile
from pathlib import Path

from cdxj_indexer.main import CDXJIndexer
from warcio.archiveiterator import ArchiveIterator

CHUNK_LINE_BYTES_MAX = 16 << 10


def dechunk(body):
    """The data of a chunked body; up to where it breaks off or stops making sense."""
    data = b""
    while True:
        end = body.find(b"\n")
        if end < 0 or end >= CHUNK_LINE_BYTES_MAX or not body[:end].endswith(b"\r"):
            return data
        size = body[:end].split(b";")[0].strip(b" \t\r")
        if not size or len(size) > 16 or size.strip(b"0123456789abcdefABCDEF"):
            return data
        size = int(size, 16)
        body = body[end + 1 :]
        data += body[:size]
        if size == 0 or body[size : size + 2] != b"\r\n":
            return data
        body = body[size + 2 :]


def payload_of(block):
    """What follows the first blank line."""
    stream = io.BytesIO(block)
    for line in stream:
        if not line.strip():
            break
    return stream.read()


def sha1(data):
    return "sha1:" + base64.b32encode(hashlib.sha1(data).digest()).decode()


def is_chunked(record):
    coding = record.http_headers and record.http_headers.get_header("Transfer-Encoding")
    return bool(coding) and coding.lower().split(",")[-1].strip() == "chunked"


def warcio_problems(path):
    """For each record: its id, type, offset, warcio's complaints, and whether its body is chunked."""
    with open(path, "rb") as stream:
        records = ArchiveIterator(stream, check_digests=True)
        for record in records:
            chunked = record.rec_type == "response" and is_chunked(record)
            # The raw stream, so that content codings, true or false, do not matter.
            while record.raw_stream.read(1 << 20):
                pass
            yield record.rec_headers, records.get_record_offset(), list(record.digest_checker.problems), chunked


def blocks(path):
    with open(path, "rb") as stream:
        for record in ArchiveIterator(stream, no_record_parse=True):
            yield record.raw_stream.read()


def check_records(path, report):
    for (headers, offset, problems, chunked), block in zip(warcio_problems(path), blocks(path), strict=True):
        if chunked:
            problems = [problem for problem in problems if not problem.startswith("payload digest")]
            if headers.get_header("WARC-Payload-Digest") != sha1(dechunk(payload_of(block))):
                problems.append("payload digest is wrong after taking the chunking away")
        if not headers.get_header("WARC-Block-Digest"):
            problems.append("no block digest")
        if headers.get_header("Content-Length") != str(len(block)):
            problems.append("Content-Length is wrong")
        report(not problems, f"{path.name} at {offset}: {'; '.join(problems)}")


def parse(line):
    key, timestamp, fields = line.split(" ", 2)
    return key, timestamp, json.loads(fields)


def unpack_frames(path, plain):
    """Writes the frames of a file one after the other, and says for each where it starts in both files, and its length."""
    import zstandard

    packed, places, at = path.read_bytes(), [], 0
    with open(plain, "wb") as out:
        while at < len(packed):
            frame = zstandard.ZstdDecompressor().decompressobj()
            record = frame.decompress(packed[at:])
            assert zstandard.frame_content_size(packed[at:]) == len(record), "a frame does not say its length"
            end = len(packed) - len(frame.unused_data)
            places.append((out.tell(), at, end - at))
            out.write(record)
            at = end
    return places


def check_zstd(path, report):
    """The same checks on the plain records, and an index whose places are those of the frames."""
    with tempfile.TemporaryDirectory() as temporary:
        plain = Path(temporary) / path.name.removesuffix(".zst")
        places = unpack_frames(path, plain)
        check_records(plain, report)
        offsets = [offset for _, offset, _, _ in warcio_problems(plain)]
        report(offsets == [start for start, _, _ in places], f"{path.name}: frames are not records")
        frames = {str(start): (str(at), str(length)) for start, at, length in places}
        theirs = io.StringIO()
        CDXJIndexer(theirs, str(plain), sort=True).process_all()
        lines = []
        for line in theirs.getvalue().splitlines():
            key, timestamp, fields = parse(line)
            fields["offset"], fields["length"] = frames[fields["offset"]]
            fields["filename"] = path.name
            lines.append(f"{key} {timestamp} {json.dumps(fields)}")
    return compare_index(path, lines, report)


def check_index(path, report):
    theirs = io.StringIO()
    CDXJIndexer(theirs, str(path), sort=True).process_all()
    return compare_index(path, theirs.getvalue().splitlines(), report)


def compare_index(path, theirs, report):
    index = path.with_name(path.name.split(".warc")[0] + ".cdxj")
    ours = index.read_text(encoding="ascii").splitlines() if index.exists() else []
    report(len(ours) == len(theirs), f"{index.name} has {len(ours)} lines, cdxj-indexer {len(theirs)}")
    report(ours == sorted(ours), f"{index.name} is not sorted")
    by_offset = {parse(line)[2]["offset"]: line for line in ours}
    for their_line in theirs:
        our_line = by_offset.get(parse(their_line)[2]["offset"])
        same = our_line is not None and parse(our_line) == parse(their_line)
        report(same, f"{index.name}:\n  ours   {our_line}\n  theirs {their_line}")
    return ours


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    logging.disable(logging.WARNING)
    directory = Path(sys.argv[1])
    counts = {True: 0, False: 0}

    def report(passed, message):
        counts[bool(passed)] += 1
        if not passed:
            print(message)

    files = sorted(path for path in directory.iterdir() if path.name.endswith((".warc", ".warc.gz", ".warc.zst")))
    report(files, f"{directory} holds no WARC file")
    lines = []
    for path in files:
        if path.name.endswith(".zst"):
            lines += check_zstd(path, report)
            continue
        check_records(path, report)
        lines += check_index(path, report)
    merged = directory / "index.cdxj"
    if merged.exists():
        report(merged.read_text(encoding="ascii").splitlines() == sorted(lines), "index.cdxj is not the union")
    print(f"{counts[True]} passed, {counts[False]} failed")
    sys.exit(1 if counts[False] else 0)


if __name__ == "__main__":
    main()
