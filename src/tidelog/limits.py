"""Every bound of the system in one place, with the relations between them checked.  No state."""

from __future__ import annotations

from typing import Final

from tidelog.invariants import check

KIB: Final = 1024
MIB: Final = 1024 * KIB

KEY_BYTES_MAX: Final = 64 * KIB - 1
VALUE_BYTES_MAX: Final = 16 * MIB
ENTRY_BLOBS_MAX: Final = 1024
BATCH_ENTRIES_MAX: Final = 1 << 20
BATCH_BODY_BYTES_MAX: Final = 32 * MIB
WRITE_VERSION_END: Final = 1 << 128
STORAGE_ID_END: Final = 1 << 64
WORD_END: Final = 1 << 64
"""A write version is two words."""

GROUP_BYTES_MAX: Final = 64 * MIB
"""What one group commit may write; more waits for the next one."""
GROUP_RECORDS_MAX: Final = 64 * KIB
APPEND_QUEUE_BYTES_MAX: Final = 128 * MIB
"""Bytes that may wait for the group commit before callers are held back."""

WAL_FILE_BYTES_MIN: Final = 64 * KIB
WAL_FILE_BYTES_DEFAULT: Final = 64 * MIB
WAL_FILE_BYTES_MAX: Final = 1024 * MIB
WAL_BACKLOG_FILES_MAX: Final = 4
"""Rolled WAL files that may wait for the segment writer before appends are refused."""
WAL_SPARE_FILES_MAX: Final = WAL_BACKLOG_FILES_MAX + 1
"""Recycled WAL files that are kept for the next rolls: all that a backlog leaves when it is worked
off.  The next one needs them, and a new file costs its zeros and slower syncs."""

SEGMENT_BYTES_MAX: Final = 64 * MIB
SEGMENT_BATCH_BYTES: Final = 256 * KIB
"""Size at which compaction starts a new batch inside a segment."""
COMPACTION_GROUP_MAX: Final = 8
SEGMENT_FOOTER_BYTES_MAX: Final = 256 * MIB
OPEN_SEGMENTS_MAX: Final = 64
KEY_PAGE_ROWS: Final = 1024

SNAPSHOT_BYTES_MAX: Final = 64 * MIB
LIVE_INDEX_BYTES_MAX: Final = 1024 * MIB
MANIFEST_BYTES_MAX: Final = 256 * MIB
ARCHIVE_MANIFEST_BYTES_MAX: Final = 256 * MIB

RAFT_LOG_ROOM_BYTES_MIN: Final = 4 * KIB
RAFT_LOG_ROOM_BYTES_DEFAULT: Final = 4 * MIB
"""How much is written behind the base of a Raft log file before the next file begins."""
RAFT_LOG_FILE_BYTES_MAX: Final = 1024 * MIB
RAFT_SNAPSHOT_BYTES_MAX: Final = 256 * MIB

TOPICS_MAX: Final = 10_000
STREAMS_PER_TOPIC_MAX: Final = 4_096
TOPIC_NAME_CHARS_MAX: Final = 200
READERS_MAX: Final = 1_000
"""Readers whose last position a process remembers, to show their lag."""
READER_NAME_CHARS_MAX: Final = 200
STREAMS_MAX: Final = 100_000
"""Log streams of all topics together."""
PRODUCERS_PER_STREAM_MAX: Final = 4_096
PRODUCER_WINDOW: Final = 8
"""How many of a producer's last appends can still be answered with their receipt."""
MANIFEST_PRODUCERS_MAX: Final = 256 * KIB
"""Producers of all log streams together that a node knows after a restart."""

STORAGE_NODES_MAX: Final = 1_024
NODE_ADDRESS_CHARS_MAX: Final = 300
METADATA_BATCH_COMMANDS_MAX: Final = 4_096
"""What one entry of the metadata repository's Raft log may carry."""
METADATA_REQUEST_BYTES_MAX: Final = 512 * KIB
"""What a change of the metadata may have, and all changes in one entry together."""
METADATA_REQUESTS_MAX: Final = 1_024
"""Changes of the metadata that may wait at one metadata node."""
METADATA_REPORTS_MAX: Final = 1 << 17
"""Replicas whose shared reports may wait at the leader."""
NODE_REPORT_REPLICAS_MAX: Final = 16 * KIB
"""Replicas that one message of a storage node reports on."""
DELIVERY_CUTS_MAX: Final = 256
"""Cuts that a storage node may have been sent and not acknowledged."""
DELIVERY_COMMITS_MAX: Final = 256 * KIB
"""Commits in one message to a storage node, if they are of several cuts."""

METADATA_ANSWERS_MAX: Final = 4_096
"""Changes whose outcome a metadata node remembers, to answer a repetition alike."""
METADATA_LOG_BYTES: Final = 64 * MIB
"""Applied entries of the metadata's Raft log that are cut off behind a snapshot at the latest."""
METADATA_REFUSALS_MAX: Final = 4_096
"""Refused changes of the metadata that are not made if the log has them once more."""
METADATA_VIEW_BYTES_MAX: Final = 32 * MIB
"""All that is told of the metadata at one position of its log."""
METADATA_VIEW_EAGER_BYTES: Final = MIB
"""A view up to this size is sent again if no more than the ends of streams are news."""
METADATA_WATCHERS_MAX: Final = 4_096
"""Processes that one metadata node tells of every change."""

POST_MESSAGE_BYTES_MAX: Final = 33 * MIB
"""What a message between processes of the cluster may have: views are the largest."""
POST_QUEUE_BYTES_MAX: Final = 128 * MIB
"""What waits for one process of the cluster; beyond it the oldest messages are dropped."""
POST_QUEUE_MESSAGES_MAX: Final = 16 * KIB
POST_CONNECTIONS_MAX: Final = 4_096
"""Connections of other processes of the cluster."""
POST_NODES_MAX: Final = 4_096
"""Processes whose addresses are remembered."""

ADMIN_QUESTIONS_MAX: Final = 64
"""What other processes ask one that is worked on at once."""
ADMIN_RANGE_ENTRIES_MAX: Final = 1 << 20
"""Entries of a log stream that one question may be about."""
CHECKED_FILES_MAX: Final = 256
"""Files that one answer to an audit tells of."""

ENSEMBLE_NODES_MAX: Final = 9
ENSEMBLE_DEPARTED_MAX: Final = 16
"""Nodes that may leave the ensemble of a stream in one term."""
STREAM_PLAN_BYTES_MAX: Final = 4 * KIB
ORDER_NUMBER_END: Final = 1 << 63
"""Terms and the numbers of topics, streams and nodes lie below it."""
REPORT_ENTRIES_MAX: Final = 1 << 40
"""Unordered entries that one report may tell of."""
ORDER_HISTORY_CUTS_MAX: Final = 1_024
"""Cuts kept for replicas that are behind; one that is further behind asks a peer."""
ORDER_HISTORY_COMMITS_MAX: Final = 256 * KIB
"""What all kept cuts together may say about streams."""
ORDER_UNAPPLIED_CUTS_MAX: Final = 128
"""Cuts of a stream that a majority has not applied yet; beyond it the stream has to wait."""
REPORT_CUTS_MAX: Final = 32
"""A replica that has heard of so many cuts since its last report waits with the next no longer."""

HELLO_BYTES_MAX: Final = 4 * KIB
"""What a frame may have before both sides have said hello."""
SESSION_REPLICAS_MAX: Final = 16
"""Replicas of one datastore; each commit waits for all of them."""
SESSION_BUFFER_BYTES: Final = 4 * MIB
"""Entries of a log session that pile up before they are sent ahead of its end."""
BLOB_PART_BYTES: Final = MIB
"""What one message brings of a BLOB."""
SESSION_ANSWER_BYTES_MAX: Final = 8 * KIB
"""What the answer of a replica to its master may have."""
NODE_LANES_MAX: Final = 16
"""Log connections of a session between two storage nodes."""
NODE_UNDERWAY_BYTES_MAX: Final = 64 * MIB
"""What one storage node has sent to another without an answer; a larger message goes alone."""
NODE_UNDERWAY_MAX: Final = 64 * KIB
"""Messages of which the same holds."""
NODE_GROUP_COMMITS_MAX: Final = 16
"""Group commits that one storage node may await from another."""
NODE_EPOCH_BYTES_MAX: Final = 4 * MIB
"""What one of them answers for; a larger message goes alone."""
NODE_ANSWER_BYTES_MAX: Final = MIB
"""What the answer to a group commit brings of messages to the node that asked."""
NODE_ANSWER_MESSAGES_MAX: Final = 16 * KIB
NODE_APPENDS_MAX: Final = 64 * KIB
"""Appends that may wait on one storage node; more are refused for a while."""
CARRIED_BATCHES_MAX: Final = 64 * KIB
"""Batches that one message between replicas brings."""
TOKEN_CHARS_MAX: Final = 1 * KIB
"""A token is part of a hello."""
TOKEN_FILE_BYTES_MAX: Final = 1 * MIB
MESSAGE_BYTES_MAX: Final = 4 * MIB
ATTACHMENT_BYTES_MAX: Final = 64 * MIB
PAGE_BYTES: Final = 4 * MIB
"""About what one answer to a read holds, unless one batch is larger."""
IN_FLIGHT_REQUESTS_MAX: Final = 256
"""Requests that a node works on for one connection; it reads no further ones meanwhile."""
IN_FLIGHT_BYTES_MAX: Final = 64 * MIB
"""What requests of one connection may bring with them before no further ones are read."""
PASSED_ON_BYTES_MAX: Final = 128 * MIB
"""Appends that may wait in a node to be passed on to one other node."""
CONNECTIONS_MAX: Final = 1_000
READ_THREADS: Final = 4
CHORE_THREADS: Final = 4
"""Threads of a node for what may take long: topics, staged batches, compaction."""

BLOB_BYTES_END: Final = 1 << 63
"""A BLOB is shorter than this."""
BLOB_PAUSE_SECONDS: Final = 3600.0
"""How long the upload of a BLOB may stand still; one that goes on later is refused."""
BLOB_COPY_BYTES: Final = MIB
"""What is in memory of a BLOB while its file is copied."""
BLOB_SYNC_BYTES: Final = 32 * MIB
"""So much of a BLOB may wait for its sync: nobody has to wait for the sync of a large one."""
DATASTORE_QUEUE_BYTES_MAX: Final = 16 * MIB
"""Entries of a datastore that wait in memory for a flush; more are written out early."""
UNRECORDED_BYTES_MAX: Final = 256 * MIB
"""Entries that wait for the group commit of their epoch: they keep their WAL files back."""

REPLICA_IN_FLIGHT_BYTES_MAX: Final = 256 * MIB
"""What masters may have sent to a replica service without an answer, all connections together."""
REPLICA_THREADS_MAX: Final = 32
"""Log channels whose syncs a replica service can join in one."""

LIVENESS_ROWS_MAX: Final = 1 << 20
"""Key rows looked at in one go while live indexes are computed: this bounds its memory."""
PLAN_LLSNS_MAX: Final = 1 << 28
"""LLSNs that one part of a compaction plan spans: as a bitmap they fit into an attachment."""
PLAN_BYTES_MAX: Final = 48 * MIB
"""What one part of a compaction plan may have."""

RAFT_ENTRY_BYTES_MAX: Final = MIB
"""What one proposal to the Raft group may bring."""
RAFT_APPEND_BYTES_MAX: Final = MIB
"""What one message to a follower holds, unless one entry is larger."""
RAFT_INFLIGHT_BYTES_MAX: Final = 64 * MIB
RAFT_INFLIGHT_COUNT_MAX: Final = 1_024
RAFT_UNCOMMITTED_BYTES_MAX: Final = 256 * MIB
RAFT_CHUNK_BYTES_MAX: Final = MIB
RAFT_READS_MAX: Final = 64 * KIB
"""Linearizable reads that may wait at one node; more are lost at once."""
RAFT_MEMBERS_MAX: Final = 32
RAFT_NUMBER_END: Final = 1 << 62
"""Terms and indexes of a peer beyond this are nonsense; all real ones fit into 64 bits."""

OPERATOR_TICKS_MAX: Final = 1 << 32
OPERATOR_PROCEDURES_MAX: Final = 1_024
"""Elections and reconfigurations of one operator that may be under way."""
OPERATOR_TERM_JUMP_MAX: Final = 1 << 32
"""How far a term may lie above the one in the metadata: a node that claims more is broken."""

check(BATCH_BODY_BYTES_MAX >= 2 * VALUE_BYTES_MAX, "the largest value must fit into a batch")
check(
    GROUP_BYTES_MAX >= BATCH_BODY_BYTES_MAX + DATASTORE_QUEUE_BYTES_MAX,
    "the largest batch must fit into a group beside what waits",
)
check(GROUP_BYTES_MAX >= 2 * BATCH_BODY_BYTES_MAX, "the largest batch must fit into a group")
check(WAL_FILE_BYTES_MAX < 1 << 32, "WAL offsets are 32 bit in frames")
check(
    METADATA_REQUEST_BYTES_MAX + 64 * METADATA_BATCH_COMMANDS_MAX <= RAFT_ENTRY_BYTES_MAX,
    "changes and reports of a batch must fit into a Raft entry",
)
check(ORDER_UNAPPLIED_CUTS_MAX <= ORDER_HISTORY_CUTS_MAX, "a stream waits before history is full")
check(2 * REPORT_CUTS_MAX <= ORDER_UNAPPLIED_CUTS_MAX, "no stream waits for a report that waits")
check(STREAMS_PER_TOPIC_MAX <= STREAMS_MAX, "the largest topic must fit into a log")
check(STREAMS_MAX <= MANIFEST_PRODUCERS_MAX, "every log stream may remember a producer")
check(
    MANIFEST_PRODUCERS_MAX * 32 * (1 + PRODUCER_WINDOW) + KIB * STREAMS_MAX < MANIFEST_BYTES_MAX,
    "the producers must fit into the manifest, beside the rest of it",
)
check(WRITE_VERSION_END == WORD_END**2, "a write version is two words")
check(300 * STREAMS_MAX < METADATA_VIEW_BYTES_MAX, "all streams must fit into a view")
check(
    METADATA_VIEW_BYTES_MAX + MIB <= POST_MESSAGE_BYTES_MAX,
    "a view must fit into a message between processes",
)
check(
    POST_MESSAGE_BYTES_MAX >= MESSAGE_BYTES_MAX,
    "what fits into a message of a core must fit into one between processes",
)
check(
    80 * max(DELIVERY_COMMITS_MAX, ORDER_HISTORY_COMMITS_MAX) < POST_MESSAGE_BYTES_MAX,
    "the commits of a result must fit into a message between processes",
)
check(2 * POST_MESSAGE_BYTES_MAX <= POST_QUEUE_BYTES_MAX, "the queue must have room for others")
check(
    20 * STREAMS_MAX + 64 * NODE_REPORT_REPLICAS_MAX < MESSAGE_BYTES_MAX,
    "what a storage node hosts, and a report on it, must fit into a message",
)
check(2 * TOKEN_CHARS_MAX <= HELLO_BYTES_MAX, "the longest token must fit into a hello")
check(
    REPLICA_IN_FLIGHT_BYTES_MAX >= 2 * (ATTACHMENT_BYTES_MAX + MESSAGE_BYTES_MAX),
    "a large frame must not keep all other log channels from being heard",
)
check(ATTACHMENT_BYTES_MAX >= BATCH_BODY_BYTES_MAX + MIB, "the largest batch must fit into a frame")
check(ATTACHMENT_BYTES_MAX >= PLAN_BYTES_MAX + MIB, "a part of a plan must fit into a frame")
check(PLAN_LLSNS_MAX // 8 + 8 * MIB <= PLAN_BYTES_MAX, "a bitmap of all its LLSNs fits into a part")
check(
    RAFT_APPEND_BYTES_MAX + RAFT_ENTRY_BYTES_MAX < MESSAGE_BYTES_MAX,
    "the largest append of the Raft group must fit into a message",
)
check(
    NODE_ANSWER_BYTES_MAX + 16 * NODE_ANSWER_MESSAGES_MAX < MESSAGE_BYTES_MAX,
    "all that is said with a group commit must fit into a message",
)
check(
    56 * CARRIED_BATCHES_MAX + MIB // 4 < MESSAGE_BYTES_MAX,
    "what is told of the batches of a message must fit into it",
)
check(8 * KIB * CHECKED_FILES_MAX < MESSAGE_BYTES_MAX, "files of an answer must fit into it")
check(
    READERS_MAX * (4 * READER_NAME_CHARS_MAX + 4 * TOPIC_NAME_CHARS_MAX + KIB)
    < MESSAGE_BYTES_MAX - MIB,
    "readers of an answer must fit into it, beside the rest of a cluster's status",
)
check(RAFT_CHUNK_BYTES_MAX < MESSAGE_BYTES_MAX, "a part of a snapshot must fit into a message")
check(
    RAFT_LOG_FILE_BYTES_MAX >= 4 * RAFT_UNCOMMITTED_BYTES_MAX,
    "entries that wait to be committed must fit into the base of a Raft log file",
)
check(
    2 * (RAFT_UNCOMMITTED_BYTES_MAX + METADATA_LOG_BYTES) < RAFT_LOG_FILE_BYTES_MAX,
    "a Raft log file must have room for its base, and for as much again",
)
