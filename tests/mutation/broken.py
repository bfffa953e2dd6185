"""The code of the mutants: each function takes the right function and returns a wrong one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import msgspec
import numpy as np
from pyroaring import BitMap64

from tidelog.core.compaction.horizon import NOTHING_DROPPED
from tidelog.core.compaction.live import LiveRows
from tidelog.core.replica.recover import Facts, Recovery, Verdict
from tidelog.formats import wal as wal_format
from tidelog.formats.entry import Kind
from tidelog.formats.key_rows import KeyRows
from tidelog.formats.manifest import StreamManifest
from tidelog.formats.snapshot import Snapshot
from tidelog.storage import compaction_files
from tidelog.storage.compaction_files import COMPACTING_SUFFIX, compacting_name
from tidelog.storage.fail_stop import FailStopVfs
from tidelog.storage.frame_write import FrameWrite, records_of
from tidelog.storage.node_store import NodeStore
from tidelog.storage.segments import segment_name
from tidelog.storage.snapshot_store import SnapshotState, SnapshotStore
from tidelog.storage.stream_store import StreamStore
from tidelog.storage.vfs import FileStat, Vfs

Right = Callable[..., Any]


def does_nothing(right: Right) -> Right:
    return lambda *args, **options: None


def again(right: Right) -> Right:
    def wrong(self: Any, *args: Any) -> None:
        try:
            self.inner.sync(*args) if not args else self.inner.sync_dir(*args)
        except OSError:
            right(self, *args)

    return wrong


# -- other orders ------------------------------------------------------------------------------


def rename_first(right: Right) -> Right:
    def wrong(vfs: Vfs, directory: str, name: str, data: bytes) -> None:
        file = vfs.create(f"{directory}/{name}.tmp")
        file.write_at(0, (data,))
        vfs.rename(f"{directory}/{name}.tmp", f"{directory}/{name}")
        file.sync()
        file.close()
        vfs.sync_dir(directory)

    return wrong


def retire_first(right: Right) -> Right:
    def wrong(self: NodeStore, *, wal_file: int | None = None) -> None:
        if wal_file is not None:
            self.wal.retire_below(wal_file)
        right(self, wal_file=wal_file)

    return wrong


def link_others_first(right: Right) -> Right:
    def wrong(vfs: Vfs, directory: str, numbers: Sequence[int]) -> None:
        vfs.sync_dir(directory)
        compaction_files._make_links(vfs, directory, numbers)
        compaction_files._replace_others(vfs, directory, numbers)
        compaction_files._replace_first(vfs, directory, numbers)
        vfs.unlink(f"{directory}/{compacting_name(numbers)}")
        vfs.sync_dir(directory)

    return wrong


def unlink_others_first(right: Right) -> Right:
    def wrong(vfs: Vfs, directory: str, numbers: Sequence[int]) -> None:
        vfs.sync_dir(directory)
        for number in numbers[1:]:
            vfs.unlink(f"{directory}/{segment_name(number)}")
        vfs.sync_dir(directory)
        right(vfs, directory, numbers)

    return wrong


def cut_in_the_next_frame(right: Right) -> Right:
    waiting: list[tuple[NodeStore, FrameWrite]] = []

    def wrong(self: NodeStore, frame: FrameWrite) -> None:
        for node, before in waiting:
            if node is self:
                self.wal.append(records_of(before, {}))
        ends = {write.stream: self.streams[write.stream].end_llsn for write in frame.batches}
        self.wal.append(records_of(FrameWrite(batches=frame.batches), ends))
        self.apply(frame)
        waiting[:] = [(self, FrameWrite(cut=frame.cut))]

    return wrong


def horizon_in_the_next_snapshot(right: Right) -> Right:
    def wrong(self: Any, snapshot: Snapshot, live: BitMap64) -> SnapshotState:
        stored = msgspec.structs.replace(
            snapshot, deletes=getattr(self, "known_before", NOTHING_DROPPED)
        )
        self.known_before = snapshot.deletes
        published: SnapshotState = right(self, stored, live)
        return replace(published, deletes=snapshot.deletes)

    return wrong


# -- checks left out ---------------------------------------------------------------------------


def without_verification(right: Right) -> Right:
    return lambda data, offset=0, **options: right(data, offset, verify=False)


class AnyNumber(int):
    """Equal to every other number."""

    __hash__ = int.__hash__

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False


def any_checksum(right: Right) -> Right:
    def wrong(*args: Any) -> Any:
        with patch.object(wal_format, "crc32c", lambda *data: AnyNumber(0)):
            return right(*args)

    return wrong


def any_salt(right: Right) -> Right:
    def wrong(buffer: bytes, offset: int, salt: int) -> Any:
        return right(buffer, offset, wal_format.frame_salt(buffer, offset) or salt)

    return wrong


def always_two_links(right: Right) -> Right:
    def wrong(vfs: FailStopVfs, directory: str) -> Any:
        stat = FailStopVfs.stat

        def lying(self: FailStopVfs, path: str) -> FileStat | None:
            found = stat(self, path)
            is_compacting = found is not None and path.endswith(COMPACTING_SUFFIX)
            return replace(found, links=2) if found and is_compacting else found

        with patch.object(FailStopVfs, "stat", lying):
            return right(vfs, directory)

    return wrong


def no_durable_sequence(right: Right) -> Right:
    return lambda *args, **options: right(*args, **{**options, "durable_sequence": 0})


def missing_is_empty(right: Right) -> Right:
    def wrong(self: SnapshotStore, snapshot: Snapshot) -> BitMap64 | None:
        found: BitMap64 | None = right(self, snapshot)
        return BitMap64() if found is None else found

    return wrong


def no_horizon(right: Right) -> Right:
    def wrong(self: SnapshotStore, *args: Any) -> tuple[SnapshotState, Any, Any]:
        state, *rest = right(self, *args)
        return replace(state, deletes=NOTHING_DROPPED), *rest

    return wrong


def always_usable(right: Right) -> Right:
    def wrong(_: Facts) -> Recovery:
        return Recovery(Verdict.VALID, "whatever")

    return wrong


# -- wrong rules -------------------------------------------------------------------------------


def deletes_do_nothing(right: Right) -> Right:
    """Deletes are dead, and what they deleted is live."""

    def wrong(rows: KeyRows, *args: Any) -> LiveRows:
        puts = rows.kind == Kind.PUT
        found: LiveRows = right(rows.filter(puts), *args)
        mask = np.zeros(len(rows), dtype=np.bool_)
        mask[puts] = found.mask
        everything = np.ones(len(rows), dtype=np.bool_)
        return LiveRows(mask, found.shadowed, everything, np.zeros(len(rows), dtype=np.bool_))

    return wrong


def deletes_die_at_once(right: Right) -> Right:
    def wrong(rows: KeyRows, *args: Any) -> LiveRows:
        found: LiveRows = right(rows, *args)
        return replace(found, mask=found.mask & (rows.kind == Kind.PUT))

    return wrong


def nothing_to_note(right: Right) -> Right:
    return lambda *args, **options: BitMap64()


def without_trim(right: Right) -> Right:
    def wrong(self: StreamStore, wal_file: int) -> StreamManifest:
        manifest: StreamManifest = right(self, wal_file)
        state = msgspec.structs.replace(manifest.state, trim_llsn_end=1, trim_glsn_end=1)
        return msgspec.structs.replace(manifest, state=state)

    return wrong
