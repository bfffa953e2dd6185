"""Jobs that run on Spark between a log and tables."""

from __future__ import annotations

from tidelog.pipeline.materialization.job import materialize
from tidelog.pipeline.materialization.progress import BatchProgress, MaterializeSummary
from tidelog.pipeline.materialization.tables import read_table

__all__ = ["BatchProgress", "MaterializeSummary", "materialize", "read_table"]
