"""An audit reads each replica from the node that it names, or says that it could not."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from tests.pipeline.audits import LOG_ID, MemoryNode
from tests.storage.streams import Streams, put
from tidelog.errors import Unreachable
from tidelog.pipeline.auditing import reading, targets
from tidelog.pipeline.auditing.rows import Lost, decode_told
from tidelog.pipeline.auditing.tasks import FilesTask, ReadTask, Task

WHERE = "tcp://10.0.0.9:7447"


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> MemoryNode:
    """The node that answers at the address that others were given, too."""
    story = Streams.new()
    story.write([put("k")])
    node = MemoryNode(2, story.node)
    for module in (reading, targets):
        monkeypatch.setattr(module, "connect_node", lambda *_, **__: nullcontext(node))
    return node


def told(task: Task) -> tuple[int, list[object]]:
    """How many entries a task has read, and what it says."""
    rows = [
        row for batch in reading.run_tasks([0], [task], LOG_ID, 1.0) for row in batch.to_pylist()
    ]
    words = [row["told"] for row in rows if row["told"] is not None]
    return len(rows) - len(words), [decode_told(one) for one in words]


@pytest.mark.usefixtures("shared")
def test_a_task_reads_nothing_from_another_node() -> None:
    why = (
        f"node 2 answers at {WHERE}, not node 1: each node needs an address for clients of its own"
    )
    for task in (ReadTask(1, WHERE, "t", 1, 1, 2), FilesTask(1, WHERE, "t", 1)):
        assert told(task) == (0, [Lost(1, 1, why)])
    assert told(ReadTask(2, WHERE, "t", 1, 1, 2))[0] == 1


@pytest.mark.usefixtures("shared")
def test_what_another_node_says_of_itself_does_not_count() -> None:
    with pytest.raises(Unreachable, match="node 2 answers"):
        targets.ask(1, WHERE, 1.0, LOG_ID)
    assert targets.ask(2, WHERE, 1.0, LOG_ID).node == 2
    known = targets.Targets(LOG_ID, {1: WHERE, 2: WHERE})
    assert {node for node, _ in targets.ask_again(known, 1.0)} == {2}
