"""``format("tidelog")``: what Spark asks first.

Spark's planner loads this module to learn the name of the format, whether it is used or not: so
everything else is imported when it is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceArrowWriter,
        DataSourceReader,
        DataSourceStreamArrowWriter,
        DataSourceStreamReader,
    )
    from pyspark.sql.types import StructType


class TidelogDataSource(DataSource):
    """A topic of a log as a table: rows are entries, and writing appends."""

    @classmethod
    def name(cls) -> str:
        return "tidelog"

    def schema(self) -> StructType:
        from tidelog.spark.schema import default_schema

        return default_schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        from tidelog.spark.options import batch_options
        from tidelog.spark.schema import chosen_columns
        from tidelog.spark.source import BatchReader

        return BatchReader(batch_options(self.options), chosen_columns(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from tidelog.spark.options import stream_options
        from tidelog.spark.schema import chosen_columns
        from tidelog.spark.stream_source import StreamReader

        return StreamReader(stream_options(self.options), chosen_columns(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        from tidelog.spark.sink import make_writer

        return make_writer(dict(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        from tidelog.spark.sink import make_stream_writer

        return make_stream_writer(dict(self.options), schema, overwrite)
