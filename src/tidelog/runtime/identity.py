"""Who a node is: a sealed file in its data directory, written once.

N1  a directory has one identity for ever: it is only made in an empty directory, never replaced
N2  it is durable before anything else of the node counts
"""

from __future__ import annotations

import secrets
from typing import Final

import msgspec

from tidelog.errors import BadOption, CorruptData, NotALog, WrongCluster
from tidelog.formats.envelope import seal, unseal
from tidelog.limits import KIB, RAFT_MEMBERS_MAX
from tidelog.storage.atomic_file import TEMPORARY_SUFFIX, read_file, replace_file
from tidelog.storage.fail_stop import FailStopVfs
from tidelog.storage.log_directory import LOCK_NAME, check_way, parent_of, sync_parent
from tidelog.storage.vfs import FileKind
from tidelog.types import NO_NODE, NodeId

IDENTITY_NAME: Final = "identity"
BEGUN_NAME: Final = "metadata.new"
"""What a node that is being made has before its identity; see ``new_node``."""
CLUSTER_ID_BYTES: Final = 16
DRAWN_NODE_BEGIN: Final = 1 << 16
"""Ids of nodes that join later are drawn from here on; those below are given by a person."""

_MAGIC: Final = b"TLID"
_VERSION: Final = 1
_BYTES_MAX: Final = 4 * KIB
_DRAWN_NODES: Final = 1 << 48
_IGNORED_NAMES: Final = frozenset(
    (LOCK_NAME, "lost+found", IDENTITY_NAME + TEMPORARY_SUFFIX, BEGUN_NAME)
)


class Identity(msgspec.Struct, frozen=True, array_like=True):
    """Which node of which cluster a directory belongs to."""

    cluster_id: bytes
    node: NodeId
    members: tuple[NodeId, ...] = ()
    """The first nodes of the metadata repository; empty if the node joined later."""


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Identity)


def new_cluster_id() -> bytes:
    """A number that no other cluster has."""
    return secrets.token_bytes(CLUSTER_ID_BYTES)


def drawn_node_id() -> NodeId:
    """A number that no other node has, for a node that joins a cluster."""
    return NodeId(DRAWN_NODE_BEGIN + secrets.randbelow(_DRAWN_NODES))


def parse_cluster_id(text: str) -> bytes:
    """A cluster id as people write it: 32 hexadecimal digits."""
    try:
        found = bytes.fromhex(text.strip())
    except ValueError:
        found = b""
    if len(found) != CLUSTER_ID_BYTES:
        raise BadOption(f"{text!r} is no cluster id: it has {2 * CLUSTER_ID_BYTES} digits, 0 to f")
    return found


def founder(cluster_id: bytes, node: int, members: tuple[int, ...]) -> Identity:
    """The identity of one of a cluster's first nodes."""
    if not NO_NODE < node < DRAWN_NODE_BEGIN:
        raise BadOption(f"a first node has an id from 1 to {DRAWN_NODE_BEGIN - 1}, not {node}")
    if not members or len(set(members)) != len(members) or len(members) > RAFT_MEMBERS_MAX:
        raise BadOption("the first metadata nodes are named once each: --members 1,2,3")
    if not all(NO_NODE < member < DRAWN_NODE_BEGIN for member in members):
        raise BadOption(f"first metadata nodes have ids from 1 to {DRAWN_NODE_BEGIN - 1}")
    return Identity(cluster_id, NodeId(node), tuple(map(NodeId, sorted(members))))


def joiner(cluster_id: bytes) -> Identity:
    """The identity of a node that joins a cluster: nobody had this id before."""
    return Identity(cluster_id, drawn_node_id())


def encode_identity(identity: Identity) -> bytes:
    """The file's bytes."""
    return seal(_MAGIC, _VERSION, _encoder.encode(identity))


def decode_identity(data: bytes, path: str) -> Identity:
    """Read the file's bytes; CorruptData if they are damaged or make no sense."""
    body = unseal(_MAGIC, _VERSION, data, what=path, max_length=_BYTES_MAX)
    try:
        identity = _decoder.decode(body)
    except msgspec.MsgspecError as error:
        raise CorruptData(f"{path}: it holds no identity: {error}") from error
    if len(identity.cluster_id) != CLUSTER_ID_BYTES or identity.node <= NO_NODE:
        raise CorruptData(f"{path}: it names no node of a cluster")
    return identity


def make_empty(disk: FailStopVfs, directory: str) -> None:
    """Make a directory, unless it is there; NotALog if it is not empty, or not one."""
    check_way(disk, directory)
    _make_directories(disk, directory)
    if not _is_directory(disk, directory):
        raise NotALog(f"{directory} is a file: give a new directory, or an empty one")
    found = [name for name in disk.list_dir(directory) if name not in _IGNORED_NAMES]
    if IDENTITY_NAME in found:
        old = read_identity(disk, directory)
        raise WrongCluster(
            f"{directory} belongs to node {old.node} of cluster {old.cluster_id.hex()}: "
            "start that one, or give another directory"
        )
    if found:
        raise NotALog(
            f"{directory} is not empty ({found[0]}, ...): give a new directory, or an empty one"
        )


def create_identity(disk: FailStopVfs, directory: str, identity: Identity) -> None:
    """Make a directory that of a node; NotALog unless it is empty, or not there yet (N1)."""
    make_empty(disk, directory)
    replace_file(disk, directory, IDENTITY_NAME, encode_identity(identity))
    sync_parent(disk, directory)


def read_identity(disk: FailStopVfs, directory: str) -> Identity:
    """Who the node of a directory is; NotALog if there is none."""
    path = f"{directory}/{IDENTITY_NAME}"
    check_way(disk, directory)
    data = read_file(disk, path, _BYTES_MAX) if _is_directory(disk, directory) else None
    if data is None:
        raise NotALog(
            f"{directory} is not the directory of a node: make it one with "
            f"`tidelog node init --data {directory} ...`"
        )
    return decode_identity(data, path)


def check_cluster(identity: Identity, cluster_id: bytes, directory: str) -> None:
    """WrongCluster unless the directory belongs to this cluster."""
    if identity.cluster_id != cluster_id:
        raise WrongCluster(
            f"{directory} belongs to cluster {identity.cluster_id.hex()}, and cluster.id is "
            f"{cluster_id.hex()}: give the directory of this cluster's node"
        )


def _is_directory(disk: FailStopVfs, directory: str) -> bool:
    found = disk.stat(directory)
    return found is not None and found.kind is not FileKind.FILE


def _make_directories(disk: FailStopVfs, directory: str) -> None:
    """Make a directory, and those above it that are missing."""
    missing: list[str] = []
    path = directory
    while disk.stat(path) is None:
        missing.append(path)
        path = parent_of(path)
    for each in reversed(missing):
        disk.make_dir(each)
        sync_parent(disk, each)
