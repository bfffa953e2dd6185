"""For tests: clusters of real processes, and the simulator that the project tests itself with."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.runtime.local_nodes import LocalNode
    from tidelog.testing.local_cluster import LocalCluster

__all__ = ["LocalCluster", "LocalNode"]


def __getattr__(name: str) -> object:
    """Import what is asked for, and nothing before."""
    if name == "LocalCluster":
        from tidelog.testing.local_cluster import LocalCluster  # noqa: PLC0415

        return LocalCluster
    if name == "LocalNode":
        from tidelog.runtime.local_nodes import LocalNode  # noqa: PLC0415

        return LocalNode
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
