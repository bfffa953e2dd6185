"""A cluster on this machine, end to end: three nodes, a leader that is killed, nothing lost.

Run it with ``make cluster``.  It starts three processes, appends from several writers, kills the
leader of a log stream with SIGKILL in the middle of it, goes on appending, reads everything back
from every node and checks it, compacts, shows how the cluster is, and stops everything.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import tidelog
from tidelog.testing import LocalCluster

WRITERS = 4
STREAMS = 2
KEYS = 500


def say(text: str) -> None:
    print(text, flush=True)


@dataclass
class Writers:
    """Threads that append until they are told to stop; each notes what was acknowledged."""

    url: str
    places: dict[bytes, int] = field(default_factory=dict)
    """Value → GLSN of everything that was acknowledged."""
    slowest_seconds: float = 0.0
    _stopping: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def running(self) -> Iterator[None]:
        threads = [threading.Thread(target=self._write, args=(name,)) for name in range(WRITERS)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            for thread in threads:
                thread.join()

    def _write(self, name: int) -> None:
        with tidelog.connect(self.url) as log:
            number = 0
            while not self._stopping.is_set():
                number += 1
                value = f"writer {name}, record {number}".encode()
                begin = time.perf_counter()
                receipt = log.append(value)  # durable on two nodes of three, and ordered
                self.slowest_seconds = max(self.slowest_seconds, time.perf_counter() - begin)
                self.places[value] = receipt.glsn

    def wait_for(self, count: int) -> None:
        deadline = time.monotonic() + 60
        while len(self.places) < count:
            if time.monotonic() > deadline:
                raise SystemExit(f"only {len(self.places)} of {count} appends were acknowledged")
            self._stopping.wait(0.01)


def append_while_the_leader_dies(cluster: LocalCluster, count: int) -> Writers:
    say(
        f"\n2. {WRITERS} writers append one record at a time; every append is on two nodes or more."
    )
    writers = Writers(cluster.url)
    with writers.running():
        writers.wait_for(count)
        with cluster.connect() as log:
            stream = log.streams[0]
        leader = cluster.leader_of(stream)
        say(
            f"   {len(writers.places):,} appends acknowledged; node {leader.id} leads log stream "
            f"{stream}"
        )
        leader.kill()
        before = len(writers.places)
        say(f"   kill -9 of node {leader.id}; the writers are told nothing")
        writers.wait_for(before + count)
        say(f"   {len(writers.places) - before:,} appends acknowledged since, by the two others")
        leader.start()
    say(f"   no append failed; the slowest one took {writers.slowest_seconds:.2f} s")
    cluster.wait_until_ready()
    say(f"   node {leader.id} is back and has caught up")
    return writers


def read_back(cluster: LocalCluster, writers: Writers) -> None:
    say("\n3. Every node is read from the first record to the last one.")
    reads = []
    for node in cluster.nodes:
        with tidelog.connect(node.url) as log:
            reads.append([(record.glsn, record.value) for record in log.read()])
            say(f"   node {node.id}: {len(reads[-1]):,} records")
    found = {value: glsn for glsn, value in reads[0]}
    lost = [value for value, glsn in writers.places.items() if found.get(value) != glsn]
    doubled = len(reads[0]) - len(found)
    same = all(read == reads[0] for read in reads)
    say(f"   lost: {len(lost)}, doubled: {doubled}, the same order everywhere: {same}")
    if lost or doubled or not same:
        raise SystemExit("the cluster broke its promise")


def compact(cluster: LocalCluster) -> None:
    say("\n4. A topic with keys: only the newest write of each is kept.")
    with cluster.connect() as log:
        accounts = log.create_topic("accounts", streams=STREAMS)
        for turn in range(20):
            accounts.put_batch((b"account-%d" % key, b"%d" % turn * 50) for key in range(KEYS))
        before = sum(1 for _ in accounts.read())
        accounts.compact(full=True)
        after = sum(1 for _ in accounts.read())
        record = accounts.get(b"account-7")
        say(
            f"   {20 * KEYS:,} writes of {KEYS} keys: {before:,} records, {after:,} after "
            "compaction"
        )
        if record is None or record.value != b"19" * 50:
            raise SystemExit("account-7 is not what was written last")


def status(cluster: LocalCluster) -> None:
    say("\n5. How the cluster is:")
    found = cluster.status()
    for stream in found.streams:
        nodes = ", ".join(str(node) for node in stream.ensemble)
        say(
            f"   log stream {stream.stream} of {stream.topic}: term {stream.term}, led by node "
            f"{stream.leader}, on nodes {nodes}"
        )
    say(f"   metadata repository: nodes {found.metadata.members}, led by {found.metadata.leader}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--appends", type=int, default=1_000, help="before and after the kill")
    options = parser.parse_args()
    say(f"Tidelog {tidelog.__version__}")
    say("\n1. Three nodes start, each in its process, and find each other.")
    begin = time.perf_counter()
    with LocalCluster(3, streams=STREAMS) as cluster:
        cluster.wait_until_ready()
        say(f"   ready after {time.perf_counter() - begin:.1f} s at {cluster.url}")
        writers = append_while_the_leader_dies(cluster, options.appends)
        read_back(cluster, writers)
        compact(cluster)
        status(cluster)
    say("\nNext: `tidelog up`, docs/getting-started.md, and `make run` for Spark.")


if __name__ == "__main__":
    main()
