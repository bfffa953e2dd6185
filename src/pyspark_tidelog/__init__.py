"""Registers ``format("tidelog")``: Spark imports every module whose name begins with pyspark_.

One of them that cannot be imported would break every format, so this needs nothing but pyspark.
"""

from tidelog.spark.data_source import TidelogDataSource


class DefaultSource(TidelogDataSource):
    """The class that Spark looks for."""


__all__ = ["DefaultSource"]
