"""What can be wrong with the disk of one node: full, failing, or changed behind its back."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from random import Random
from typing import Final

SHIM: Final = Path(__file__).with_name("fsync_shim.c")
TRIGGER: Final = "TIDELOG_TEST_FSYNC_FAILS"


@cache
def can_mount() -> bool:
    """Whether we may mount a file system in memory."""
    return os.geteuid() == 0 and shutil.which("mount") is not None


@cache
@contextmanager
def small_disk(place: Path, mebibytes: int) -> Iterator[None]:
    """A file system of this size at ``place``, which is made."""
    place.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m,mode=0700", "tmpfs", str(place)]
    subprocess.run(command, check=True, capture_output=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True, capture_output=True)


def fill_up(place: Path) -> Path:
    """Take all room that is left; removing the file gives it back."""
    ballast = place / "ballast"
    with ballast.open("wb") as file:
        chunk = bytes(64 * 1024)
        while True:
            try:
                file.write(chunk)
                file.flush()
            except OSError:
                return ballast


def compile_shim(directory: Path) -> Path:
    """The library that makes syncs fail."""
    library = directory / "fsync_shim.so"
    command = ["gcc", "-shared", "-fPIC", "-O2", "-o", str(library), str(SHIM), "-ldl"]
    subprocess.run(command, check=True, capture_output=True)
    return library


def failing_syncs(library: Path, trigger: Path) -> dict[str, str]:
    """The environment of a process whose syncs fail once ``trigger`` exists."""
    return {"LD_PRELOAD": str(library), TRIGGER: str(trigger)}


def flip_bits(files: list[Path], count: int, seed: int) -> list[str]:
    """Change single bits where files hold something, in each at least one; tells where."""
    random = Random(seed)
    used = {path: len(path.read_bytes().rstrip(b"\0")) for path in files}
    files = [path for path in files if used[path]]
    flipped: list[str] = []
    for number in range(max(count, len(files))):
        path = files[number % len(files)]
        place, bit = random.randrange(used[path]), 1 << random.randrange(8)
        with path.open("r+b") as file:
            file.seek(place)
            [byte] = file.read(1)
            file.seek(place)
            file.write(bytes([byte ^ bit]))
        flipped.append(f"{path.name}@{place}")
    return flipped
