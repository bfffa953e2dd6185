"""What the packages hold that are made of this tree."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path
from zipfile import ZipFile

from tests.tidy.test_tidy import ROOT, relative, tracked_files


def build(target: str, directory: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(directory)]
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True, timeout=60)
    (made,) = directory.iterdir()
    return made


def test_the_source_package_has_all_that_is_here_so_that_its_tests_and_targets_run(
    tmp_path: Path,
) -> None:
    with tarfile.open(build("sdist", tmp_path)) as package:
        names = {name.partition("/")[2] for name in package.getnames()}

    assert {relative(path) for path in tracked_files()} <= names
    assert not any("__pycache__" in name or name.startswith(".venv") for name in names)


def test_the_wheel_has_the_source_its_types_and_the_licence_and_nothing_else(
    tmp_path: Path,
) -> None:
    with ZipFile(build("wheel", tmp_path)) as wheel:
        names = set(wheel.namelist())

    source = {relative(path) for path in tracked_files() if relative(path).startswith("src/")}
    others = {name for name in names if f"src/{name}" not in source}
    assert source <= {f"src/{name}" for name in names}
    assert "tidelog/py.typed" in names
    assert all(name.partition("/")[0].endswith(".dist-info") for name in others)
    assert any(name.endswith("licenses/LICENSE") for name in others)
