"""WAL files and segments as lists of what is in them, as far as they can be read.  No state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidelog.cli.output import Id, bytes_fields
from tidelog.errors import CorruptData
from tidelog.formats.batch import Batch, decode_batch
from tidelog.formats.replica_records import (
    decode_carry,
    decode_filled,
    decode_hard_state,
    decode_order,
    decode_reset,
)
from tidelog.formats.segment import HEADER_BYTES, SegmentFooter, decode_segment_header
from tidelog.formats.wal import (
    FILE_HEADER_BYTES,
    DecodedRecord,
    Frame,
    RecordType,
    Verdict,
    WalFileHeader,
    WalScan,
    decode_file_header,
    decode_frame,
    frame_salt,
    scan_file,
)
from tidelog.formats.wal_payloads import (
    decode_boundary,
    decode_cut,
    decode_staged_batch,
    decode_trim,
    decode_truncate,
)
from tidelog.storage.os_vfs import OsVfs
from tidelog.storage.segment_file import SegmentReader

Item = dict[str, Any]


@dataclass(slots=True)
class Dump:
    """What a file holds; ``problem`` says where it breaks, if it does."""

    file: str
    kind: str
    summary: Item = field(default_factory=dict)
    items: list[Item] = field(default_factory=list)
    truncated: bool = False
    problem: str = ""

    def fields(self) -> Item:
        return {
            "file": self.file,
            "kind": self.kind,
            "summary": self.summary,
            "items": self.items,
            "truncated": self.truncated,
            "problem": self.problem or None,
        }

    def take(self, items: Iterable[Item], limit: int | None) -> None:
        """Keep the first ``limit`` items; what breaks off their reading is the problem."""
        try:
            for item in items:
                if len(self.items) == limit:
                    self.truncated = True
                    return
                self.items.append(item)
        except CorruptData as error:
            self.problem = self.problem or str(error).removeprefix(f"{self.file}: ")


def _entry_items(batch: Batch) -> Iterator[Item]:
    for llsn, entry in zip(batch.llsns(), batch.entries(), strict=True):
        yield {
            "llsn": llsn,
            "kind": entry.kind.name.lower(),
            **bytes_fields("key", entry.key),
            **bytes_fields("value", entry.value),
            "storage_id": entry.storage_id,
            "write_version": entry.write_version,
            "timestamp_us": Id(entry.timestamp_us),
        }


# -- WAL ----------------------------------------------------------------------------------------


def dump_wal(file: str, limit: int | None, *, entries: bool) -> Dump:
    data = Path(file).read_bytes()
    dump = Dump(file, "wal")
    try:
        header = decode_file_header(data)
        dump.summary = {
            "number": header.number,
            "log_id": header.log_id.hex(),
            "salt": Id(header.salt),
            "first_sequence": header.first_sequence,
        }
    except CorruptData as error:
        dump.problem = f"offset 0: {error}"
        guessed = _guess_header(data)
        if guessed is None:
            return dump
        header = guessed
    scan = scan_file(data, header)
    dump.summary |= _scan_summary(scan, len(data))
    if scan.verdict is Verdict.CORRUPT:
        dump.problem = dump.problem or f"offset {scan.end_offset}: {scan.detail}"
    items = (_wal_entries if entries else _wal_records)(scan.frames)
    dump.take(items, limit)
    return dump


def _guess_header(data: bytes) -> WalFileHeader | None:
    """With a damaged header the first frame, if it is whole, tells salt and sequence."""
    salt = frame_salt(data, FILE_HEADER_BYTES)
    frame = decode_frame(data, FILE_HEADER_BYTES, salt)
    if not isinstance(frame, Frame):
        return None
    return WalFileHeader(number=0, salt=salt, log_id=b"", first_sequence=frame.sequence)


def _scan_summary(scan: WalScan, size: int) -> Item:
    return {
        "file_bytes": size,
        "frames": len(scan.frames),
        "end_offset": scan.end_offset,
        "next_sequence": scan.next_sequence,
        "verdict": scan.verdict.value,
        "detail": scan.detail,
    }


def _wal_records(frames: Iterable[Frame]) -> Iterator[Item]:
    for frame in frames:
        for record in frame.records:
            yield {
                "offset": frame.offset,
                "sequence": frame.sequence,
                "type": record.type.name.lower(),
                "stream": record.stream or None,
                "previous_llsn": record.previous_llsn,
                "bytes": len(record.payload),
                "content": _content(record),
            }


def _content(record: DecodedRecord) -> str:
    payload = record.payload
    match record.type:
        case RecordType.BATCH:
            batch = decode_batch(payload)
            text = f"{batch.count} entries, LLSN {batch.first_llsn}..{batch.end_llsn - 1}"
            if batch.producer:
                text += f", producer {batch.producer} sequence {batch.sequence}"
            return text + (", rewritten" if batch.rewritten else "")
        case RecordType.CUT:
            cut = decode_cut(payload)
            parts = [
                f"stream {c.stream}: {c.length} from LLSN {c.llsn_begin} at GLSN {c.glsn_begin}"
                for c in cut.commits
            ]
            return f"version {cut.version}; " + "; ".join(parts)
        case RecordType.TRIM:
            trim = decode_trim(payload)
            return f"topic {trim.topic} before GLSN {trim.glsn_end}, LLSN {trim.llsn_end}"
        case RecordType.TRUNCATE:
            truncate = decode_truncate(payload)
            return f"from LLSN {truncate.llsn_end} on, term {truncate.term}"
        case RecordType.STAGED:
            staged = decode_staged_batch(payload)
            where = f"stage file {staged.place.file} at offset {staged.place.offset}"
            return f"{staged.count} entries, their columns in {where}"
        case RecordType.BOUNDARY:
            return f"write version {decode_boundary(payload)}"
        case _:
            return _replica_content(record)


def _replica_content(record: DecodedRecord) -> str:
    payload = record.payload
    match record.type:
        case RecordType.HARD_STATE:
            state = decode_hard_state(payload)
            complete = "complete" if state.is_complete else "not complete"
            return f"term {state.term}, {complete}{'' if state.is_member else ', no member'}"
        case RecordType.RESET:
            return f"begins anew as generation {decode_reset(payload).generation}"
        case RecordType.ORDER:
            order = decode_order(payload)
            runs = [
                f"{r.length} from LLSN {r.llsn_begin} at GLSN {r.glsn_begin}" for r in order.runs
            ]
            version = [] if order.context is None else [f"version {order.context.version}"]
            return "; ".join([*version, *runs])
        case RecordType.FILLED:
            filled = decode_filled(payload).filled
            return f"filled up to LLSN {filled.end - 1}, snapshot index {filled.snapshot_index}"
        case _:
            return f"from LLSN {decode_carry(payload)} on written again"


def _wal_entries(frames: Iterable[Frame]) -> Iterator[Item]:
    for frame in frames:
        for record in frame.records:
            if record.type is RecordType.BATCH:
                place = {"sequence": frame.sequence, "stream": record.stream}
                yield from (place | item for item in _entry_items(decode_batch(record.payload)))


# -- segments -----------------------------------------------------------------------------------


def dump_segment(file: str, limit: int | None, *, entries: bool) -> Dump:
    dump = Dump(file, "segment")
    try:
        reader = SegmentReader.open(OsVfs(), file)
    except CorruptData as error:
        return _salvage_segment(file, limit, str(error).removeprefix(f"{file}: "), entries)
    try:
        footer = reader.footer
        dump.summary = _segment_summary(reader, footer)
        dump.take(_segment_items(reader, entries), limit)
    finally:
        reader.close()
    broken = [item for item in dump.items if "problem" in item]
    if broken:
        at = f"offset {broken[0]['offset']}: {broken[0]['problem']}"
        dump.problem = at if len(broken) == 1 else f"{len(broken)} batches are damaged; {at}"
    return dump


def _segment_summary(reader: SegmentReader, footer: SegmentFooter) -> Item:
    stats = footer.stats
    return {
        "number": footer.number,
        "stream": footer.stream,
        "log_id": reader.log_id.hex(),
        "file_bytes": reader.size_bytes,
        "first_llsn": footer.first_llsn,
        "end_llsn": footer.end_llsn,
        "batches": len(footer.blocks),
        "entries": stats.entries,
        "keyed_entries": stats.keyed,
        "data_bytes": stats.data_bytes,
        "key_pages": len(footer.pages),
        "glsn_runs": len(footer.runs),
        "max_version": stats.max_version,
        "min_timestamp_us": Id(stats.min_timestamp_us),
        "max_timestamp_us": Id(stats.max_timestamp_us),
    }


def _segment_items(reader: SegmentReader, entries: bool) -> Iterator[Item]:
    """Batch after batch; a damaged one does not hide those behind it."""
    blocks, runs = reader.footer.blocks, reader.footer.runs
    for number, first in enumerate(blocks.first_llsn):
        place = {"offset": blocks.offset[number], "bytes": blocks.length[number]}
        try:
            (batch,) = reader.read_blocks(first, first + 1)
        except CorruptData as error:
            yield {**place, "problem": str(error).removeprefix(f"{reader.path}: ")}
            continue
        if entries:
            for item in _entry_items(batch):
                yield {"glsn": runs.glsn_of(item["llsn"]), **item}
        else:
            yield {**place, **_batch_item(batch), "glsn": runs.glsn_of(batch.first_llsn)}


def _batch_item(batch: Batch) -> Item:
    return {
        "first_llsn": batch.first_llsn,
        "end_llsn": batch.end_llsn,
        "entries": batch.count,
        "term": batch.term,
        "keyed": batch.is_keyed,
        "rewritten": batch.rewritten,
    }


def _salvage_segment(file: str, limit: int | None, problem: str, entries: bool) -> Dump:
    """Without its footer a segment is a row of batches that can be walked until one breaks."""
    data = Path(file).read_bytes()
    dump = Dump(file, "segment", {"file_bytes": len(data)}, problem=problem)
    try:
        header = decode_segment_header(data)
        dump.summary |= {
            "number": header.number,
            "stream": header.stream,
            "log_id": header.log_id.hex(),
        }
    except CorruptData as error:
        dump.summary["header"] = str(error)
    ends = HEADER_BYTES
    try:
        for batch in _walk(data):
            place = {"offset": ends, "bytes": batch.length}
            items = _entry_items(batch) if entries else [{**place, **_batch_item(batch)}]
            dump.take(items, limit)
            if dump.truncated:
                break
            ends += batch.length
    except CorruptData as error:
        dump.problem += f"; its batches can be read up to offset {ends} ({error})"
    return dump


def _walk(data: bytes) -> Iterator[Batch]:
    offset = HEADER_BYTES
    while offset < len(data):
        batch = decode_batch(data, offset)
        yield batch
        offset += batch.length
