"""Names for the numbers of the system, so that mypy keeps them apart.  No state."""

from __future__ import annotations

from typing import NewType

Glsn = NewType("Glsn", int)
"""An entry's place in its topic, dense from 1; 0 means none."""

Llsn = NewType("Llsn", int)
"""An entry's place in its log stream, dense from 1; 0 means none."""

Term = NewType("Term", int)
"""The number of a leadership of a log stream."""

Version = NewType("Version", int)
"""The number of a cut; one sequence for the whole cluster."""

Revision = NewType("Revision", int)
"""Rises with every write of one thing in the metadata, such as a log stream or a storage node.
Every write names the one it saw; 0: it was never written."""

TopicId = NewType("TopicId", int)
StreamId = NewType("StreamId", int)
ProducerId = NewType("ProducerId", int)

NodeId = NewType("NodeId", int)
"""A storage node or a node of the metadata repository, from 1; 0 means none."""

FIRST_GLSN = Glsn(1)
FIRST_LLSN = Llsn(1)
NO_LLSN = Llsn(0)
FIRST_TERM = Term(1)
NO_TERM = Term(0)
NO_REVISION = Revision(0)
FIRST_REVISION = Revision(1)
NO_VERSION = Version(0)
NO_NODE = NodeId(0)
