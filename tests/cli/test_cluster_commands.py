"""The commands for a cluster, without one: what they ask for, print and end with."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.cli.running import run, run_json
from tests.runtime.admin.figures import WHOLE, lost
from tidelog.cli import admin_session
from tidelog.cli.admin_session import follow
from tidelog.cli.failures import Failure
from tidelog.client.procedures import Step
from tidelog.client.verification import Checked
from tidelog.errors import Busy, UnknownStream
from tidelog.interface.cluster_figures import ClusterStatus
from tidelog.interface.readers import ReaderFacts

URL = "tidelog://127.0.0.1:1"


class FakeAdmin:
    """Notes what is asked for; every step of what takes long is in ``steps``."""

    def __init__(self) -> None:
        self.shown = [WHOLE]
        self.calls: list[tuple[Any, ...]] = []
        self.steps = [Step(1, "swap: prepare", 5, 10), Step(1, "swap is done: nodes 1, 2, 4")]
        self.checked: list[Checked] = []

    def status(self) -> ClusterStatus:
        return self.shown.pop(0) if len(self.shown) > 1 else self.shown[0]

    def verify(self) -> Iterator[Checked]:
        yield from self.checked

    def create_stream(self, topic: str, **options: Any) -> int:
        self.calls.append(("create_stream", topic, options))
        return 1

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **options: Any) -> Iterator[Step] | None:
            self.calls.append((name, *args, *options.values()))
            long = name in ("drain", "move_leader", "swap", "expand", "contract")
            return iter(self.steps) if long else None

        return call


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> FakeAdmin:
    fake = FakeAdmin()

    @contextmanager
    def administering(url: str) -> Iterator[FakeAdmin]:
        yield fake

    for module in ("node_admin", "stream", "mr", "operator", "status", "top", "verify_online"):
        monkeypatch.setattr(f"tidelog.cli.{module}.administering", administering)
    monkeypatch.setattr(admin_session, "administering", administering)
    return fake


# --- status ------------------------------------------------------------------------------------


def test_status_shows_nodes_streams_and_the_metadata_repository(admin: FakeAdmin) -> None:
    shown = run("status", "-d", URL).stdout

    assert "metadata repository: nodes 1*, 2, 3; term 4" in shown
    assert "NODE  ROLES" in shown
    assert "1*, 2, 3" in shown.splitlines()[-1]


def test_status_ends_with_1_and_the_remedy_if_something_is_wrong(admin: FakeAdmin) -> None:
    admin.shown = [lost(WHOLE, 3)]

    shown = run("status", "-d", URL, code=1).stdout

    assert "does not answer" in shown
    assert "3 (silent)" in shown
    assert "→ look at its log" in shown
    fields = run_json("status", "-d", URL, code=1)
    assert not fields["healthy"]
    assert fields["findings"][0]["severity"] == "warning"


def test_status_shows_who_reads_and_how_far_behind(admin: FakeAdmin) -> None:
    reader = ReaderFacts("t", "report", 4, 61.0, lag=6)
    admin.shown = [replace(WHOLE, readers=(reader,))]

    last, header = reversed(run("status", "-d", URL).stdout.splitlines()[-2:])

    assert header.split() == ["READER", "TOPIC", "AT", "GLSN", "BEHIND", "HEARD", "OF"]
    assert last.split() == ["report", "t", "4", "6", "1", "min", "ago"]
    assert run_json("status", "-d", URL)["readers"][0]["lag"] == 6


def test_status_in_json_has_all_figures(admin: FakeAdmin) -> None:
    fields = run_json("status", "-d", URL)

    assert fields["healthy"]
    assert [node["node"] for node in fields["nodes"]] == [1, 2, 3]
    assert fields["streams"][0]["replicas"][1]["lag"] == 0
    assert fields["metadata"]["leader"] == 1


def test_a_directory_is_no_cluster(tmp_path: Path) -> None:
    assert "address" in run("status", "-d", tmp_path, code=2).stderr


# --- nodes and streams -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "call"),
    [
        ("node add 4 --peers tcp://h:1 --clients tcp://h:2", ("add_node", 4, "tcp://h:1", "tcp://h:2")),
        ("node remove 3", ("remove_node", 3)),
        ("node drain 3", ("drain", 3, False)),
        ("node drain 3 --contract", ("drain", 3, True)),
        ("stream seal 1", ("seal", 1)),
        ("stream unseal 1", ("unseal", 1)),
        ("stream move-leader 1", ("move_leader", 1, 0)),
        ("stream move-leader 1 --to 2", ("move_leader", 1, 2)),
        ("stream swap 1 --from 3 --to 4", ("swap", 1, 3, 4)),
        ("stream expand 1 --to 4", ("expand", 1, 4)),
        ("stream contract 1 --from 3", ("contract", 1, 3)),
        ("stream abort 1", ("abort_change", 1)),
        ("mr add 4", ("add_member", 4, "")),
        ("mr add 4 --peers tcp://h:1", ("add_member", 4, "tcp://h:1")),
        ("mr remove 3", ("remove_member", 3)),
        ("mr transfer 2", ("transfer_leadership", 2)),
        ("operator pause", ("pause_operators",)),
        ("operator resume", ("resume_operators",)),
    ],
)  # fmt: skip
def test_each_command_asks_for_what_it_says(
    admin: FakeAdmin, arguments: str, call: tuple[Any, ...]
) -> None:
    assert run(*arguments.split(), "-d", URL).stdout
    assert admin.calls == [call]
    admin.calls.clear()
    assert json.loads(run(*arguments.split(), "-d", URL, "-o", "json").stdout)


def test_a_stream_is_made_on_nodes_or_with_a_number_of_replicas(admin: FakeAdmin) -> None:
    run("stream", "create", "-d", f"{URL}/t", "--on", "1", "--on", "2")
    run("stream", "create", "-d", URL, "--replicas", "2")

    assert admin.calls == [
        ("create_stream", "t", {"nodes": (1, 2), "replicas": 0}),
        ("create_stream", "default", {"nodes": (), "replicas": 2}),
    ]
    run("stream", "create", "-d", URL, "--on", "1", "--replicas", "2", code=2)


def test_lists_show_one_line_for_each(admin: FakeAdmin) -> None:
    assert len(run("node", "list", "-d", URL).stdout.splitlines()) == 4
    assert len(run("stream", "list", "-d", URL).stdout.splitlines()) == 2
    assert len(run("mr", "list", "-d", URL).stdout.splitlines()) == 4
    assert len(run("operator", "list", "-d", URL).stdout.splitlines()) == 4
    assert run_json("operator", "list", "-d", URL)["operators"] == [1, 2, 3]
    assert run_json("mr", "list", "-d", URL)["members"] == [1, 2, 3]


def test_a_node_that_is_not_there_is_not_drained(admin: FakeAdmin) -> None:
    run("node", "drain", "9", "-d", URL, code=4)
    assert admin.calls == []


def test_how_far_something_is_goes_to_the_standard_error(admin: FakeAdmin) -> None:
    done = run("stream", "swap", "1", "--from", "3", "--to", "4", "-d", URL)

    assert "swap: prepare" in done.stderr
    assert done.stdout == "log stream 1: swap is done: nodes 1, 2, 4\n"


# --- following ---------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_sees_one_line_with_what_was_copied() -> None:
    terminal = Terminal()

    last = follow(iter([Step(1, "swap: prepare", 5, 10), Step(1, "done")]), "", terminal)

    assert last == "done"
    assert "\rlog stream 1: swap: prepare, 5 of 10 entries (50 %)" in terminal.getvalue()
    assert "\n" not in terminal.getvalue()


def test_elsewhere_only_what_is_new_is_written() -> None:
    written = io.StringIO()

    follow(iter([Step(1, "a", 1, 9), Step(1, "a", 2, 9), Step(1, "b")]), "", written)

    assert written.getvalue() == "log stream 1: a\nlog stream 1: b\n"


def test_an_interrupt_says_that_the_cluster_goes_on_and_how_to_come_back() -> None:
    def steps() -> Iterator[Step]:
        yield Step(1, "swap: prepare")
        raise KeyboardInterrupt

    with pytest.raises(Failure, match=r"goes on.*run it again"):
        follow(steps(), "run it again", io.StringIO())


def test_errors_of_the_cluster_have_their_exit_codes(
    admin: FakeAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(error: Exception) -> None:
        def call(*_: object) -> None:
            raise error

        monkeypatch.setattr(admin, "seal", call, raising=False)

    fail(UnknownStream("there is no log stream 9"))
    assert "no log stream 9" in run("stream", "seal", "9", "-d", URL, code=4).stderr
    fail(Busy("an election is under way"))
    run("stream", "seal", "9", "-d", URL, code=5)


# --- top, doctor, verify -----------------------------------------------------------------------


def test_top_shows_rates_from_the_second_look_on(admin: FakeAdmin) -> None:
    grown = replace(WHOLE, streams=(replace(WHOLE.streams[0], ordered_end_llsn=5000),))
    admin.shown = [WHOLE, grown]

    shown = run("top", "-d", URL, "-n", "2", "--interval", "0.1").stdout.splitlines()

    first, second = [line for line in shown if line.startswith("cluster ")]
    assert "rates follow" in first
    assert int(second.split()[-2].replace(",", "")) > 1000


def test_doctor_tells_how_fast_a_directory_is(tmp_path: Path) -> None:
    found = run("doctor", "-d", tmp_path, "-o", "json")
    facts = json.loads(found.stdout)["facts"]
    assert any("a sync takes" in fact for fact in facts)
    assert list(tmp_path.iterdir()) == []


def test_doctor_ends_by_what_is_worst(admin: FakeAdmin) -> None:
    assert "3 of 3 nodes answer" in run("doctor", "-d", URL).stdout
    admin.shown = [lost(WHOLE, 3)]
    run("doctor", "-d", URL, code=1)
    admin.shown = [lost(WHOLE, 2, 3)]
    assert "→" in run("doctor", "-d", URL, code=3).stdout


def test_doctor_does_not_take_a_file_that_is_not_there(tmp_path: Path) -> None:
    run("doctor", "-d", tmp_path / "nobody", code=4)


def test_online_verification_ends_with_3_if_replicas_differ(admin: FakeAdmin) -> None:
    sound = Checked("replicas", "t", 1, 1, 101, (1, 2, 3))
    admin.checked = [sound]
    assert "100 entries are equal" in run("verify", "--online", "-d", URL).stdout
    admin.checked = [sound, replace(sound, problem="entries differ (node 2: ab)")]
    assert "entries differ" in run("verify", "--online", "-d", URL, code=3).stdout
    fields = run_json("verify", "--online", "-d", URL, code=3)
    assert (fields["healthy"], len(fields["problems"])) == (False, 1)


def test_a_replica_that_could_not_be_compared_is_told_and_no_difference(admin: FakeAdmin) -> None:
    admin.checked = [Checked("left out", "t", 1, 0, 0, (3,), "its node does not answer")]
    shown = run("verify", "--online", "-d", URL).stdout
    assert "does not answer" in shown
    assert "nothing to compare" in shown
