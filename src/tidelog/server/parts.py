"""What the sessions of a node share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tidelog.embedded.commits import LoopCommits
from tidelog.embedded.engine import INTERNAL_PREFIX, Engine
from tidelog.errors import LogError, UnknownTopic
from tidelog.formats.manifest import TopicManifest
from tidelog.net.security import ServerSecurity
from tidelog.net.threads import WorkThreads
from tidelog.server.counters import Counters
from tidelog.server.tide import Tide


@dataclass(slots=True)
class NodeParts:
    """One log and what works for it; belongs to one event loop."""

    engine: Engine
    commits: LoopCommits
    readers: WorkThreads
    """For what looks at entries."""
    chores: WorkThreads
    """For what may take long: changes of topics, compaction."""
    tide: Tide
    on_failure: Callable[[LogError], None]
    """Told when the storage has failed, which ends the node."""
    security: ServerSecurity = field(default_factory=ServerSecurity)
    """Who may come in."""
    counters: Counters = field(default_factory=Counters)
    _topics: dict[str, int] = field(default_factory=dict)

    def first_topic(self) -> str:
        """The topic that was made first: the one that is meant if none is named."""
        for _, topic in sorted(self.engine.node.topics.items()):
            if not topic.name.startswith(INTERNAL_PREFIX):
                return topic.name
        raise UnknownTopic("the log has no topic yet: create one")

    def topic(self, name: str) -> TopicManifest:
        """The topic as it is now; internal ones are nobody's business."""
        number = self._topics.get(name)
        if number is None:
            if name.startswith(INTERNAL_PREFIX):
                raise UnknownTopic(f"topic {name!r} is internal: choose another one")
            number = self._topics[name] = self.engine.find_topic(name).topic
        return self.engine.node.topics[number]
