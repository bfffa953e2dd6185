"""What can be said about a read from Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tidelog.errors import BadOption
from tidelog.interface.readers import check_reader_name
from tidelog.net.endpoint import LogUrl
from tidelog.spark.offsets import EARLIEST, LATEST, Anchor, Place, parse_place, parse_time
from tidelog.spark.option_values import OptionValues
from tidelog.spark.security_files import SecurityFiles

_TLS: Final = ("tls.ca", "tls.cert", "tls.key", "tls.serverName")
CONNECTION: Final = (
    *("endpoint", "url", "topic", "timeoutMs", "connectTimeoutMs"),
    *_TLS,
    "tokenFile",
)
_EVERY_READ: Final = (
    *CONNECTION,
    "startingOffsets",
    "startingTimestamp",
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "archive",
)
BATCH: Final = (*_EVERY_READ, "endingOffsets", "endingTimestamp")
STREAM: Final = (
    *_EVERY_READ,
    "maxRecordsPerTrigger",
    "maxBytesPerTrigger",
    "fetchWaitMs",
    "readerName",
)

TIMEOUT_MS: Final = 120_000
"""How long a read goes on trying while the log cannot be reached, as while its node restarts."""
CONNECT_TIMEOUT_MS: Final = 10_000
FETCH_WAIT_MS: Final = 500
RECORDS_PER_PARTITION: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Connection:
    """Which topic of which log is meant, and how long to wait for it."""

    url: LogUrl
    topic: str
    timeout: float
    """Seconds until a call that meets no node gives up."""
    connect_timeout: float
    """The same, for the first call: a wrong address should not look like a slow log."""
    files: SecurityFiles = field(default_factory=SecurityFiles)

    @classmethod
    def of(cls, values: OptionValues) -> Connection:
        url, topic = values.log()
        for name in _TLS:
            if values.text(name) is not None and not url.endpoints[0].tls:
                raise values.wrong(name, "it needs an endpoint with TLS, tidelog+tls://host:port")
        return cls(
            url,
            topic,
            values.seconds("timeoutMs", TIMEOUT_MS),
            values.seconds("connectTimeoutMs", CONNECT_TIMEOUT_MS),
            SecurityFiles(*(values.text(name) or "" for name in (*_TLS, "tokenFile"))),
        )


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """A read, before the log was asked anything."""

    connection: Connection
    start: Place
    end: Place
    partitions_min: int
    records_per_partition: int
    fail_on_data_loss: bool
    records_per_trigger: int
    """0: no bound."""
    bytes_per_trigger: int
    """0: no bound."""
    fetch_wait: float
    """Seconds to wait for something new before a trigger finds nothing."""
    reader: str
    """Under which name the log shows how far a query has come; empty: as its process is called."""
    archive: str = ""
    """The directory of an archive whose entries need not be in the log any more; empty: none."""


def batch_options(given: Mapping[str, str]) -> ReadOptions:
    """The options of ``spark.read``."""
    _refuse_of_other_use(given, STREAM, BATCH, "spark.readStream")
    values = OptionValues(given, BATCH, use="spark.read.format('tidelog')")
    options = _read_options(values, EARLIEST)
    if options.start.anchor is Anchor.LATEST:
        raise values.wrong(
            "startingOffsets", "a batch from there on has no rows; give earliest or a GLSN"
        )
    if options.end.anchor is Anchor.EARLIEST:
        raise values.wrong(
            "endingOffsets", "a batch up to there has no rows; give latest or a GLSN"
        )
    start, end = options.start, options.end
    if start.anchor is end.anchor and start.number > end.number:
        raise BadOption(
            f"the read ends before it begins: from {start.anchor.value} {start.number} up to "
            f"{end.number}; exchange start and end"
        )
    return options


def stream_options(given: Mapping[str, str]) -> ReadOptions:
    """The options of ``spark.readStream``."""
    _refuse_of_other_use(given, BATCH, STREAM, "spark.read")
    values = OptionValues(given, STREAM, use="spark.readStream.format('tidelog')")
    return _read_options(values, LATEST)


def _refuse_of_other_use(
    given: Mapping[str, str], theirs: tuple[str, ...], ours: tuple[str, ...], use: str
) -> None:
    known = {name.lower() for name in ours}
    for name in theirs:
        if name.lower() not in known and any(name.lower() == key.lower() for key in given):
            raise BadOption(f"the option {name!r} is for {use} only: leave it out here")


def _read_options(values: OptionValues, start: Place) -> ReadOptions:
    return ReadOptions(
        connection=Connection.of(values),
        start=_place(values, "starting", start),
        end=_place(values, "ending", LATEST),
        partitions_min=values.count("minPartitions", 1),
        records_per_partition=values.count("maxRecordsPerPartition", RECORDS_PER_PARTITION),
        fail_on_data_loss=values.flag("failOnDataLoss", True),
        records_per_trigger=values.count("maxRecordsPerTrigger", 0),
        bytes_per_trigger=values.count("maxBytesPerTrigger", 0),
        fetch_wait=values.seconds("fetchWaitMs", FETCH_WAIT_MS, least_ms=0),
        reader=_reader(values),
        archive=_archive(values),
    )


def _reader(values: OptionValues) -> str:
    name = values.text("readerName")
    if name is not None:
        check_reader_name(name)
    return name or ""


def _archive(values: OptionValues) -> str:
    """An absolute path: the processes of a job have working directories of their own."""
    text = values.text("archive")
    if text is None:
        return ""
    if not text or "://" in text:
        raise values.wrong("archive", "give a directory that all machines of the job can read")
    return str(Path(text).absolute())


def _place(values: OptionValues, side: str, default: Place) -> Place:
    """Where a read starts or ends: ``…Offsets`` or ``…Timestamp``, not both."""
    offsets, moment = f"{side}Offsets", f"{side}Timestamp"
    text, time = values.text(offsets), values.text(moment)
    if text is not None and time is not None:
        raise BadOption(f"the options {offsets!r} and {moment!r} exclude each other: give one")
    if text is not None:
        place = parse_place(text)
        if place is None:
            raise values.wrong(
                offsets,
                "give earliest, latest, a GLSN (from 1 on) or an offset of a query's progress, "
                'as {"glsn": 42}',
            )
        return place
    if time is not None:
        place = parse_time(time)
        if place is None:
            raise values.wrong(
                moment, "give milliseconds since 1970 or a time such as 2026-01-31T12:00:00Z"
            )
        return place
    return default
