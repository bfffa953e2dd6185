"""Where the processes of a Spark job find certificates and their token.

Options of a query show in its plan, in the web pages and in the event log.  So they only ever name
files, and whichever process connects reads them: the driver's and those of the executors.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.net.security import ClientSecurity


@dataclass(frozen=True, slots=True)
class SecurityFiles:
    """What the options name; for the rest the environment of each process counts."""

    ca: str = ""
    cert: str = ""
    key: str = ""
    server_name: str = ""
    token_file: str = ""

    def read(self) -> ClientSecurity:
        """What they hold now, in this process."""
        from tidelog.net.security import ClientSecurity  # noqa: PLC0415

        return ClientSecurity.from_files(
            ca=shipped(self.ca),
            cert=shipped(self.cert),
            key=shipped(self.key),
            server_name=self.server_name,
            token_file=shipped(self.token_file),
        )


def shipped(path: str) -> str:
    """Where a file is that may have come with ``--files``: told by its name, without a slash."""
    if not path or "/" in path:
        return path
    from pyspark import SparkContext, SparkFiles  # noqa: PLC0415

    if SparkFiles._is_running_on_worker or SparkContext._active_spark_context is not None:
        found = Path(SparkFiles.getRootDirectory()) / path
        if found.exists():
            return str(found)
    return path
