"""An archive job that waits to be killed: ``python -m tests.spark.archive_main``.

Arguments: URL, directory, and how many manifests it may write before it says ``held``: by then the
files of the next step are durable, but no manifest names them.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

from tests.spark.sessions import spark_session
from tidelog.formats.archive_manifest import ArchiveManifest
from tidelog.pipeline import archive
from tidelog.pipeline.archiving import home, running
from tidelog.pipeline.archiving.home import ArchiveHome

RANGE_ENTRIES = 50


class HeldHome(ArchiveHome):
    left = 0

    def _replace(self, manifest: ArchiveManifest) -> None:
        HeldHome.left -= 1
        if HeldHome.left < 0:
            print("held", flush=True)
            signal.pause()
        super()._replace(manifest)


def main() -> None:
    url, directory, manifests = sys.argv[1:]
    HeldHome.left = int(manifests)
    with (
        patch.object(home, "ArchiveHome", HeldHome),
        patch.object(running, "STEP_RANGES", 2),
        TemporaryDirectory() as place,
        spark_session(Path(place)) as spark,
    ):
        archive(url, directory, range_entries=RANGE_ENTRIES, trim=True, spark=spark)


if __name__ == "__main__":
    main()
