"""What a client knows of topics: what nodes said last, and which log streams take nothing.

Written in the event loop, read in any thread: every fact is replaced as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.formats.manifest import TopicManifest
from tidelog.formats.messages import TopicDescription

_NONE: frozenset[int] = frozenset()


@dataclass(slots=True, eq=False)
class KnownTopic:
    """Stays the same object for as long as the client lives."""

    described: TopicDescription
    manifest: TopicManifest
    sealed: frozenset[int] = _NONE
    """Log streams that have refused appends."""

    @property
    def has_open_streams(self) -> bool:
        """Whether there is a log stream that is not known to be sealed."""
        return not self.sealed.issuperset(self.manifest.streams)


class KnownTopics:
    """By their names."""

    def __init__(self) -> None:
        self._topics: dict[str, KnownTopic] = {}

    def __getitem__(self, name: str) -> KnownTopic:
        return self._topics[name]

    def learn(self, described: TopicDescription) -> None:
        """A node describes a topic as it is now."""
        manifest = TopicManifest(
            topic=described.topic,
            name=described.name,
            streams=described.streams,
            key_streams=described.key_streams,
            versions=described.versions,
        )
        known = self._topics.get(described.name)
        if known is None:
            self._topics[described.name] = KnownTopic(described, manifest)
        else:
            known.described, known.manifest = described, manifest

    def note_sealed(self, name: str, stream: int) -> None:
        """A log stream takes no appends."""
        known = self._topics.get(name)
        if known is not None:
            known.sealed |= {stream}

    def note_open(self, name: str, stream: int) -> None:
        """A log stream took an append."""
        known = self._topics.get(name)
        if known is not None and stream in known.sealed:
            known.sealed -= {stream}
