"""The load and its checks on a log that one node serves, where all of it must be quiet."""

from __future__ import annotations

from pathlib import Path

import tidelog
from tests.client.served import node
from tests.cluster.checks import check_all
from tests.cluster.history import Outcome, Seen
from tests.cluster.load import BATCHES, SINGLES, Habit, Load
from tests.cluster.payload import read_payload


def read_back(url: str, name: str) -> Seen:
    found = Seen(name)
    with tidelog.connect(url) as log:
        for record in log.read():
            found.add(record.glsn, read_payload(record.value))
    return found


def test_a_quiet_log_keeps_every_promise(tmp_path: Path) -> None:
    habits = (SINGLES, BATCHES, Habit(in_flight=8, stream=1), Habit(batch=5, in_flight=3, stream=1))
    with node(tmp_path / "log") as served, Load([served.url], habits=habits) as load:
        load.wait_for_more(2_000)
        load.wait_for_stream(1, 5)
        load.stop()
        read = read_back(served.url, "reader")
        end = read.glsns[-1] + 1
        load.wait_for_subscribers(end)
        assert load.count(Outcome.ACKNOWLEDGED) == len(load.appends)
        assert len(read) == load.acknowledged
        assert check_all(load.appends, [read], load.subscribers, end=end, hidden=0) == []


def test_what_is_under_way_when_the_log_goes_is_called_unknown_or_refused(tmp_path: Path) -> None:
    habits = (Habit(timeout=0.3), Habit(batch=10, timeout=0.3, in_flight=3, stream=1))
    with node(tmp_path / "log") as served, Load([served.url], habits=habits, subscribers=0) as load:
        load.wait_for_more(100)
        served.stop()
        load.wait_for_failures(4)
        load.stop()
        assert load.count(Outcome.OPEN) == 0
    with node(tmp_path / "log") as served:
        read = read_back(served.url, "reader")
    assert check_all(load.appends, [read], end=read.glsns[-1] + 1, hidden=0) == []
