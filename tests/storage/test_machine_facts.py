"""How many files a process may open."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

_RAISE = """
import resource
from tidelog.storage.machine_facts import raise_open_files
resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))
raise_open_files()
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""


@pytest.mark.parametrize(
    ("soft", "hard", "found"), [(256, 1024, 1024), (512, 512, 512)], ids=["raised", "all it may"]
)
def test_a_process_takes_the_files_that_it_may_open(soft: int, hard: int, found: int) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert most == resource.RLIM_INFINITY or most >= hard
    told = subprocess.run(
        [sys.executable, "-c", _RAISE.format(soft=soft, hard=hard)],
        capture_output=True,
        check=True,
        text=True,
    )
    assert told.stdout.split() == [str(found), str(hard)]
