"""``tidelog.open``: a whole log in the caller's process, without sockets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tidelog.embedded.engine import Engine
from tidelog.embedded.options import Options
from tidelog.embedded.stats import log_stats
from tidelog.embedded.topic import Topic
from tidelog.errors import BadOption, UnknownTopic
from tidelog.interface.figures import LogStats
from tidelog.storage.os_vfs import OsVfs
from tidelog.storage.scrub import Finding, scrub

if TYPE_CHECKING:
    from typing import Self

    from tidelog.storage.vfs import Vfs

DEFAULT_TOPIC = "default"


class Log(Topic):
    """An open log.  It is a handle for its first topic, and leads to the others.

    Close it, or use it as a context manager: the directory stays locked until then.
    """

    def __init__(self, engine: Engine, topic: str) -> None:
        super().__init__(engine, topic)
        self.engine = engine

    def create_topic(
        self, name: str, *, streams: int = 1, versions: str = "log", replicas: int = 0
    ) -> Topic:
        """Create a topic.  ``versions="explicit"``: every keyed write brings its write version.

        ``replicas``: of each log stream, in a cluster; a log by itself has one.
        """
        check_replicas(replicas)
        self._engine.create_topic(name, streams=streams, versions=versions)
        return Topic(self._engine, name)

    def add_streams(self, name: str, count: int) -> Topic:
        """Give a topic more log streams; they take entries without keys."""
        self._engine.add_streams(name, count)
        return Topic(self._engine, name)

    def topic(self, name: str) -> Topic:
        """A handle for an existing topic."""
        return Topic(self._engine, name)

    def topics(self) -> list[str]:
        return self._engine.topic_names()

    def log_stats(self) -> LogStats:
        """Figures of the whole log."""
        return log_stats(self._engine, self._engine.audience.tell())

    def verify(self) -> Iterator[Finding]:
        """Read every segment and check it; yields what was found for each file."""
        return scrub(self._engine.node)

    def close(self) -> None:
        """Finish what is under way and let go of the directory; closing twice is fine."""
        self._engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_log(
    path: str | Path,
    *,
    topic: str = DEFAULT_TOPIC,
    streams: int = 1,
    versions: str = "log",
    create: bool = True,
    options: Options | None = None,
    vfs: Vfs | None = None,
) -> Log:
    """Open the log at ``path``; makes it, and its first topic, if they are not there.

    ``streams`` and ``versions`` are for a topic that is made now.  With ``create=False`` a
    missing log or topic is an error.
    """
    where = str(path) if vfs is not None else str(Path(path).absolute())
    engine = Engine(vfs or OsVfs(), where, options or Options(), create=create)
    try:
        try:
            engine.find_topic(topic)
        except UnknownTopic:
            if not create:
                raise
            engine.create_topic(topic, streams=streams, versions=versions)
        return Log(engine, topic)
    except BaseException:
        engine.close()
        raise


def check_replicas(replicas: int) -> None:
    """BadOption if a log that is on one node is asked for more."""
    if replicas not in (0, 1):
        raise BadOption(f"a log by itself has one replica of each log stream, not {replicas}")
