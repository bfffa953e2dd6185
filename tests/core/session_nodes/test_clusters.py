"""Real replicas of three nodes that speak to one another through sessions alone."""

from __future__ import annotations

from tests.core.session_nodes.cluster import Cluster, Event
from tests.core.session_nodes.wires import Connection
from tidelog.core.replica.messages import Role
from tidelog.core.session.node_messages import Carry
from tidelog.core.session.node_output import NodeOptions
from tidelog.formats.node_messages import decode_node_request


def led_by_node_1(*, streams: int = 3, options: NodeOptions | None = None) -> Cluster:
    """A cluster at rest whose streams all have the same leader."""
    cluster = Cluster(streams=streams, node_options=options)
    cluster.rest()
    for stream in cluster.streams:
        cluster.elect(stream, 1)
    cluster.pass_time(3)
    assert cluster.is_open()
    return cluster


def append_to_all(cluster: Cluster) -> None:
    """Append to each stream, then end the turn of their leader."""
    for stream in cluster.streams:
        assert cluster.append(stream)
    cluster.turn(1)


def converge(cluster: Cluster) -> None:
    for _ in range(40):
        cluster.pass_time(1)
        if all(map(cluster.has_converged, cluster.streams)):
            return
    raise AssertionError("the replicas do not become equal")


def carriers(cluster: Cluster, *, target: int, commit: bool) -> list[Connection]:
    """The connections to a node on which messages are next, with or without a group commit."""
    return [
        one
        for one in cluster.connections
        if one.has_request and one.target == target and brings_commit(one) == commit
    ]


def brings_commit(connection: Connection) -> bool:
    requests = [decode_node_request(message) for message, _ in connection.requests]
    return any(isinstance(one, Carry) and one.commit for one in requests)


def propagated(cluster: Cluster, stream: int) -> int:
    return cluster.hosts[1].replicas[stream].commit_index


def test_appends_commit_and_replicas_converge() -> None:
    cluster = Cluster(streams=3)
    cluster.rest()
    for stream in cluster.streams:
        cluster.elect(stream)
    for _ in range(3):
        for stream in cluster.streams:
            assert cluster.append(stream)
        cluster.pass_time(1)
    converge(cluster)
    for stream in cluster.streams:
        assert len(cluster.log(1, stream)) == 3


def test_a_turn_has_one_group_commit_for_each_follower_however_many_streams() -> None:
    cluster = led_by_node_1(streams=8)
    before, carried = cluster.commits.copy(), cluster.sent["Carry"]
    append_to_all(cluster)
    assert cluster.sent["Carry"] - carried == 16
    assert cluster.commits - before == {(1, 2): 1, (1, 3): 1}
    cluster.rest()
    assert all(propagated(cluster, stream) == 1 for stream in cluster.streams)


def test_entries_of_one_stream_cost_each_follower_one_request_and_one_answer() -> None:
    cluster = led_by_node_1(streams=1)
    sent, answered = cluster.sent.copy(), cluster.answered.copy()
    append_to_all(cluster)
    assert cluster.sent - sent == {"Carry": 2}
    for connection in carriers(cluster, target=2, commit=True):
        cluster.happen(("request", connection))
    cluster.sync(2)
    assert cluster.answered - answered == {"NodeGroupCommitted": 1}
    assert cluster.sent - sent == {"Carry": 2}


def test_many_acknowledgements_come_with_one_answer() -> None:
    """The followers ask nothing in return: they never begin to speak."""
    cluster = led_by_node_1(streams=8)
    heard = cluster.hosts[1].leaders[2].counters.heard
    append_to_all(cluster)
    cluster.rest()
    assert cluster.hosts[1].leaders[2].counters.heard - heard >= 8
    assert cluster.hosts[2].leaders[1].counters.carries == 0


def test_nothing_is_acknowledged_before_a_followers_disk_has_it() -> None:
    cluster = led_by_node_1()
    append_to_all(cluster)
    cluster.sync(1)
    cluster.deliver()
    assert cluster.hosts[2].queue
    assert [propagated(cluster, stream) for stream in cluster.streams] == [0, 0, 0]
    cluster.sync(2)
    cluster.deliver()
    assert [propagated(cluster, stream) for stream in cluster.streams] == [1, 1, 1]


def test_a_group_commit_that_overtakes_entries_of_other_lanes_waits_for_them() -> None:
    cluster = led_by_node_1()
    append_to_all(cluster)
    cluster.sync()
    answered = cluster.hosts[2].follower.counters.group_commits
    (overtaking,) = carriers(cluster, target=2, commit=True)
    while overtaking.has_request:
        cluster.happen(("request", overtaking))
    cluster.sync(2)
    assert cluster.hosts[2].follower.counters.group_commits == answered
    assert carriers(cluster, target=2, commit=False)
    cluster.rest()
    assert [propagated(cluster, stream) for stream in cluster.streams] == [1, 1, 1]


def test_a_group_commit_is_never_answered_for_entries_that_were_lost_with_a_connection() -> None:
    cluster = led_by_node_1()
    append_to_all(cluster)
    cluster.sync()
    answered = cluster.hosts[2].follower.counters.group_commits
    (lost,) = carriers(cluster, target=2, commit=False)
    (other,) = carriers(cluster, target=2, commit=True)
    lost.cut()
    while other.has_request:
        cluster.happen(("request", other))
    cluster.sync(2)
    assert cluster.hosts[2].follower.counters.group_commits == answered
    converge(cluster)
    assert cluster.hosts[1].leaders[2].counters.lost == 1


def test_a_group_commit_that_is_lost_with_its_connection_is_answered_by_nobody() -> None:
    """Its entries on the other lane come, and are durable: the session that counted is over."""
    cluster = led_by_node_1()
    append_to_all(cluster)
    cluster.sync()
    answered = cluster.hosts[2].follower.counters.group_commits
    (other,) = carriers(cluster, target=2, commit=False)
    (lost,) = carriers(cluster, target=2, commit=True)
    lost.cut()
    while other.has_request:
        cluster.happen(("request", other))
    cluster.sync(2)
    assert cluster.hosts[2].follower.counters.group_commits == answered
    converge(cluster)
    assert cluster.hosts[1].leaders[2].counters.lost == 1


def test_a_session_that_is_cut_while_it_opens_is_opened_again() -> None:
    cluster = Cluster(streams=1)
    for _ in range(5):
        events: list[Event] = list(cluster.events())
        for event in events[:4]:
            cluster.happen(event)
        for connection in cluster.connections:
            connection.cut()
        cluster.pass_time(1)
    cluster.pass_time(6)
    assert cluster.is_open()


def test_a_leader_that_comes_back_supersedes_a_session_whose_end_did_not_show() -> None:
    cluster = led_by_node_1()
    append_to_all(cluster)
    cluster.crash(1)
    cluster.start(1)
    for _ in range(200):  # The followers do not come to read that the old connections are gone.
        event = next((one for one in cluster.events() if one[0] != "target"), None)
        if event is None:
            break
        cluster.happen(event)
    assert cluster.hosts[2].follower.counters.superseded == 1
    for stream in cluster.streams:
        cluster.elect(stream)
    converge(cluster)


def test_a_follower_that_crashes_before_it_syncs_gets_its_entries_again() -> None:
    cluster = led_by_node_1()
    append_to_all(cluster)
    cluster.deliver()
    assert len(cluster.hosts[2].queue) >= 3
    cluster.crash(2, kept=1)
    cluster.start(2)
    converge(cluster)
    assert all(len(cluster.log(2, stream)) == 1 for stream in cluster.streams)


def test_entries_that_only_a_dead_leader_had_are_cut_when_it_comes_back() -> None:
    """Requests to truncate and their answers belong to no epoch, and go both ways by carrying."""
    cluster = led_by_node_1()
    append_to_all(cluster)
    cluster.sync(1)
    for connection in cluster.connections:
        connection.cut()
    cluster.crash(1)
    for stream in cluster.streams:
        cluster.elect(stream, 2)
        assert cluster.append(stream)
    cluster.rest()
    cluster.start(1)
    cluster.rest()
    assert all(len(cluster.log(1, stream)) == 1 for stream in cluster.streams)
    for stream in cluster.streams:
        cluster.elect(stream, 2)
    converge(cluster)
    assert cluster.hosts[1].replicas[1].role is Role.FOLLOWER
    assert cluster.hosts[1].leaders[2].counters.carries >= 3


def test_a_replica_that_lost_its_log_is_filled_up() -> None:
    cluster = led_by_node_1()
    for _ in range(3):
        append_to_all(cluster)
        cluster.rest()
    cluster.crash(3)
    for disk in cluster.disks[3].values():
        disk.lose_log(None)
    cluster.start(3)
    converge(cluster)
    assert all(len(cluster.log(3, stream)) == 3 for stream in cluster.streams)


def test_small_windows_and_little_room_slow_a_session_down_but_do_not_stop_it() -> None:
    tight = NodeOptions(lanes=2, window=1, underway_max=8, underway_bytes_max=300, commits_max=1)
    cluster = led_by_node_1(streams=6, options=tight)
    for _ in range(10):
        append_to_all(cluster)
    converge(cluster)
    assert all(len(cluster.log(2, stream)) == 10 for stream in cluster.streams)
