"""Jobs that run on Spark between a log and tables."""

from __future__ import annotations

from tidelog.pipeline.archiving.job import archive
from tidelog.pipeline.archiving.progress import ArchiveProgress, ArchiveSummary
from tidelog.pipeline.auditing.findings import AuditProgress, AuditSummary, Finding, FindingKind
from tidelog.pipeline.auditing.job import audit
from tidelog.pipeline.compaction_plan.job import compact_plan
from tidelog.pipeline.compaction_plan.progress import CompactPlanSummary, PlanProgress
from tidelog.pipeline.materialization.job import materialize
from tidelog.pipeline.materialization.progress import BatchProgress, MaterializeSummary
from tidelog.pipeline.materialization.tables import read_table
from tidelog.pipeline.replaying.job import replay
from tidelog.pipeline.replaying.progress import ReplayProgress, ReplaySummary

__all__ = [
    "ArchiveProgress",
    "ArchiveSummary",
    "AuditProgress",
    "AuditSummary",
    "BatchProgress",
    "CompactPlanSummary",
    "Finding",
    "FindingKind",
    "MaterializeSummary",
    "PlanProgress",
    "ReplayProgress",
    "ReplaySummary",
    "archive",
    "audit",
    "compact_plan",
    "materialize",
    "read_table",
    "replay",
]
