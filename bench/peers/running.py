"""Rounds: in each, every peer is started afresh in every variant, does all works and is stopped.

So the peers take turns, and what the machine does meanwhile hits all of them; the median of the
rounds counts.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Final

from bench.peers.etcd import Etcd
from bench.peers.installing import Store
from bench.peers.interface import Peer, Variant
from bench.peers.kafka import Kafka
from bench.peers.measuring import Figures, measure
from bench.peers.nats import Nats
from bench.peers.processes import Unavailable
from bench.peers.rabbitmq import RabbitMq
from bench.peers.redis import Redis
from bench.peers.tidelog import Tidelog
from bench.peers.works import Scale, Work

Tell = Callable[[str], None]

PEERS: Final[dict[str, Callable[[], Peer]]] = {
    "tidelog": Tidelog,
    "nats": Nats,
    "kafka": Kafka,
    "rabbitmq": RabbitMq,
    "redis": Redis,
    "etcd": Etcd,
}


@dataclass(frozen=True, slots=True)
class Row:
    """Whose figures they are."""

    peer: str
    variant: Variant
    client: str
    """Empty: the figure is not about a client."""


@dataclass(slots=True)
class PeerResults:
    """Medians over all rounds, and why some peers have none."""

    versions: dict[str, str] = field(default_factory=dict)
    orders_streams: dict[str, bool] = field(default_factory=dict)
    figures: dict[Work, dict[Row, Figures]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    not_offered: dict[str, set[str]] = field(default_factory=dict)
    """What clients have not got, by their names."""


def measure_peers(
    directory: Path,
    cache: Path,
    scale: Scale,
    names: Sequence[str],
    tell: Tell,
    before_each: Callable[[], None] = lambda: None,
) -> PeerResults:
    """Everything, with a line for each figure as it comes.

    ``before_each`` system begins, the machine is brought into the same state.
    """
    results = PeerResults()
    peers = list(_installed(names, Store(cache), results, tell))
    found: dict[tuple[Work, Row], list[Figures]] = {}
    for number in range(scale.rounds):
        for peer in peers:
            for variant in peer.variants:
                tell(f"round {number + 1}, {peer.name}, {variant.name}")
                before_each()
                place = directory / "peers"
                for work, row, figures in _measured(peer, variant, place, scale, results, tell):
                    found.setdefault((work, row), []).append(figures)
    for (work, row), rounds in found.items():
        results.figures.setdefault(work, {})[row] = _medians(rounds)
    return results


def _installed(
    names: Sequence[str], store: Store, results: PeerResults, tell: Tell
) -> Iterator[Peer]:
    for name in names:
        peer = PEERS[name]()
        tell(f"looking for {peer.name}")
        try:
            peer.install(store)
        except Unavailable as error:
            tell(f"{peer.name} is skipped: {error}")
            results.skipped[peer.name] = _first_line(error)
            continue
        results.orders_streams[peer.name] = peer.orders_streams
        yield peer


def _measured(
    peer: Peer, variant: Variant, place: Path, scale: Scale, results: PeerResults, tell: Tell
) -> Iterator[tuple[Work, Row, Figures]]:
    """All figures of one variant; failures are told and kept."""
    title = f"{peer.name}, {variant.name}"
    place.mkdir()
    try:
        with peer.start(variant, place) as cluster:
            results.versions[peer.name] = cluster.version
            for measured in measure(cluster, scale):
                name = f"{measured.work.name} ({measured.client or 'nodes'})"
                if not measured.is_offered:
                    tell(f"  {name}: not offered: {measured.failure}")
                    whose = f"{peer.name} ({measured.client})"
                    results.not_offered.setdefault(whose, set()).add(measured.failure)
                    continue
                if measured.failure:
                    tell(f"  {name} failed: {measured.failure}")
                    results.skipped[f"{title}: {name}"] = measured.failure
                    continue
                tell(f"  {name}: {_text(measured.figures)}")
                row = Row(peer.name, variant, measured.client)
                yield measured.work, row, measured.figures
    except Exception as error:  # One peer that fails must not cost the figures of the others.
        tell(f"  failed: {error!r}")
        results.skipped[title] = _first_line(error)
    finally:
        shutil.rmtree(place)


def _medians(rounds: Sequence[Figures]) -> Figures:
    return {name: median(figures[name] for figures in rounds) for name in rounds[0]}


def _text(figures: Figures) -> str:
    return ", ".join(f"{name} {value:,.2f}" for name, value in figures.items())


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
