"""Safeguards of the source are needed: with one switched off, the test that guards it fails."""

from __future__ import annotations

import pytest

from tests.mutation.left_out import replaced
from tests.spark import test_stream_offsets as offsets
from tests.spark.nodes import running_node
from tidelog.spark import stream_source
from tidelog.spark.connections import CONNECTIONS


def test_a_query_that_takes_any_checkpoint_is_caught() -> None:
    unchecked = replaced(stream_source, "_check_origin", lambda _: lambda topic, found: None)
    with running_node() as node, unchecked():
        with pytest.raises(pytest.fail.Exception):
            offsets.test_a_checkpoint_of_another_topic_is_refused(node, "orders")
        CONNECTIONS.close()
