"""What a Raft node wants done.  No state.

The node changes its state when it is stepped; ``Raft.take`` hands over what follows from all
steps since the last ``take``, so that one write and one message carry what piled up.  The host

  1. sends ``messages`` now, in any order;
  2. queues ``write`` and makes it durable; writes complete in the order of their sequence
     numbers, and ``Raft.written(sequence)`` says that all up to that one are durable.  Messages
     that promise durability come out of the ``take`` after that; the host holds none back;
  3. if ``install`` is there, replaces the state machine's state by it;
  4. applies ``committed`` in order; it is durable on a majority, maybe not yet on this node;
  5. serves each of ``reads`` once its index is applied, and fails ``lost_reads``.
"""

from __future__ import annotations

import msgspec

from tidelog.core.raft.entries import Entry, HardState, Index, Snapshot
from tidelog.core.raft.messages import Message


class Write(msgspec.Struct, frozen=True):
    """One change of what is on disk; all of it or nothing survives a crash.

    ``snapshot`` replaces an older one.  With ``replaces_log`` it came from the leader and no entry
    of the old log stays; without, it is our own and the entries beyond it stay.
    ``entries`` come after that: whatever the log had at their first index or above is cut off.
    """

    sequence: int
    hard_state: HardState | None = None
    snapshot: Snapshot | None = None
    replaces_log: bool = False
    entries: tuple[Entry, ...] = ()


class ReadReady(msgspec.Struct, frozen=True, gc=False):
    """The read with this context may be served once ``index`` is applied."""

    context: int
    index: Index


class Output(msgspec.Struct, frozen=True):
    """See the module's text for what to do with each."""

    messages: tuple[Message, ...] = ()
    write: Write | None = None
    install: Snapshot | None = None
    committed: tuple[Entry, ...] = ()
    reads: tuple[ReadReady, ...] = ()
    lost_reads: tuple[int, ...] = ()
