"""What the figures were measured on.  No state."""

from __future__ import annotations

import os
import platform
import sqlite3
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def facts(directory: Path) -> dict[str, str]:
    """Facts that tell one run from another; no names and no addresses."""
    return {
        "processor": f"{_processor()}, {os.cpu_count()} cores",
        "memory": f"{_memory_gigabytes():.0f} GB",
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "file system": _file_system(directory),
        "priority": _priority(),
        "load before the run": f"{os.getloadavg()[0]:.1f}",
        "Python": platform.python_version(),
        "Tidelog": _version("tidelog"),
        "SQLite": sqlite3.sqlite_version,
        "LMDB": f"py-lmdb {_version('lmdb')}",
        "RocksDB": f"rocksdict {_version('rocksdict')}",
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def _priority() -> str:
    return "normal" if os.sched_getscheduler(0) == os.SCHED_OTHER else "real-time"


def _memory_gigabytes() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9


def _file_system(directory: Path) -> str:
    """The type of the file system that holds ``directory``."""
    best, found = "", "unknown"
    for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines():
        _, place, kind, *_ = line.split()
        if str(directory).startswith(place) and len(place) >= len(best):
            best, found = place, kind
    return found


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
