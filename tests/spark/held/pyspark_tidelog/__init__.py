"""Found by Spark before the installed module of this name if its directory is in PYTHONPATH.

So jobs run with hold points in them, and nothing of the jobs has to know.
"""

from tests.spark.held_source import HeldDataSource


class DefaultSource(HeldDataSource):
    """The class that Spark looks for."""


__all__ = ["DefaultSource"]
