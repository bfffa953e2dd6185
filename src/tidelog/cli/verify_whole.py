"""Checks an opened log as a whole: what its files say of one another.  Changes nothing.

Of a storage node each replica says itself whether it can be trusted.  Of any other log live entries
must all be there, live indexes be right, topics read in order, and BLOBs be whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pyroaring import BitMap64

from tidelog.cli.file_finding import FileFinding
from tidelog.cli.read_only_disk import ReadOnlyDisk
from tidelog.datastore.blob_garbage import referred_blobs
from tidelog.embedded.engine import DATASTORE_TOPIC, Engine
from tidelog.embedded.topic import Topic
from tidelog.errors import LogError
from tidelog.formats.manifest import TopicManifest
from tidelog.formats.snapshot import decode_snapshot
from tidelog.limits import WAL_FILE_BYTES_DEFAULT
from tidelog.storage.blob_store import BLOBS_DIRECTORY, BlobStore
from tidelog.storage.node_store import STREAMS_DIRECTORY
from tidelog.storage.os_vfs import OsVfs
from tidelog.storage.recovery import StoreOptions, open_node_store
from tidelog.storage.scrub import scrub


def check_replicas(path: str, deep: bool) -> Iterator[FileFinding]:
    """The replicas of a storage node: whether each can be trusted."""
    options = StoreOptions(WAL_FILE_BYTES_DEFAULT, create=False, replicas=True)
    node = open_node_store(ReadOnlyDisk(OsVfs()), path, options)
    try:
        for stream, store in sorted(node.streams.items()):
            damage = store.replica.damage if store.replica is not None else ""
            yield FileFinding("stream", f"{stream}", store.end_llsn - 1, problem=damage)
        for finding in scrub(node) if deep else ():
            if finding.problem:
                name = str(Path(finding.path).relative_to(path))
                yield FileFinding("segment", name, problem=finding.problem)
    finally:
        node.close()


def check_deeply(engine: Engine) -> Iterator[FileFinding]:
    """Whether live entries are all there, live indexes are right, and topics read in order."""
    for finding in scrub(engine.node):
        if finding.problem:
            name = str(Path(finding.path).relative_to(engine.path))
            yield FileFinding("segment", name, problem=finding.problem)
    for stream in sorted(engine.node.streams):
        yield _check_live(engine, stream)
    for topic in engine.node.topics.values():
        yield _check_order(engine, topic.name)
        if topic.name == DATASTORE_TOPIC:
            yield _check_blobs(engine, topic)


def _check_blobs(engine: Engine, topic: TopicManifest) -> FileFinding:
    """Every BLOB that an entry refers to must be there, and all that are there be whole."""
    try:
        blobs = BlobStore(engine.node.vfs, engine.path)
        referred = referred_blobs(engine.node, topic)
        missing = referred - BitMap64(blobs.ids())
        for blob in blobs.ids():
            with blobs.open(blob) as reader:
                reader.check()
    except LogError as error:
        return FileFinding("blobs", BLOBS_DIRECTORY, problem=str(error))
    if missing:
        text = f"BLOB {missing.min()} is missing, and {len(missing) - 1} others"
        return FileFinding("blobs", BLOBS_DIRECTORY, len(referred), problem=text)
    return FileFinding("blobs", BLOBS_DIRECTORY, len(referred), note="all that are needed")


def _check_live(engine: Engine, stream: int) -> FileFinding:
    """Every entry that is live by the entries themselves must be live by the stored indexes.

    The stored ones may hold more: what hid an older entry stays until the next snapshot.  After
    a trim they may hold less, for what was dead stays dead; and where streams share their keys,
    for what hides an entry may be in another one.
    """
    store = engine.node.streams[stream]
    name = f"{STREAMS_DIRECTORY}/{stream:016d}"
    live = len(store.snapshot.live)
    if not store.snapshot.index or store.trim_llsn_end > 1 or store.shared_keys:
        return FileFinding("stream", name, live, note="live indexes not compared")
    stem = f"{store.snapshot.term:016x}_{store.snapshot.index:016x}"
    try:
        data = Path(engine.path, name, f"{stem}.snapshot").read_bytes()
        missing = store.rebuild(decode_snapshot(data))[1] - store.snapshot.live
    except (LogError, OSError) as error:
        return FileFinding("stream", name, live, problem=str(error))
    if missing:
        text = f"LLSN {missing.min()} is live, but the live indexes lack it"
        return FileFinding("stream", name, live, problem=text)
    return FileFinding("stream", name, live, note="live indexes agree with the entries")


def _check_order(engine: Engine, name: str) -> FileFinding:
    """Read a whole topic; its GLSNs must ascend."""
    entries = last = 0
    try:
        for record in Topic(engine, name).read():
            if record.glsn <= last:
                text = f"GLSN {record.glsn} comes after {last}"
                return FileFinding("topic", name, entries, problem=text)
            last = record.glsn
            entries += 1
    except LogError as error:
        return FileFinding("topic", name, entries, problem=f"after GLSN {last}: {error}")
    return FileFinding("topic", name, entries, note="read in order")
