"""A served log in a process of its own, which can be killed and started again."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Self

from tests.process.children import Child


class ServerProcess:
    """Serves at the same address after each start."""

    def __init__(
        self, path: Path, *, endpoint: str = "tcp://127.0.0.1:0", streams: int = 1
    ) -> None:
        self._path = path
        self._streams = streams
        self.endpoint = endpoint
        self._child: Child | None = None
        self.start()

    @property
    def url(self) -> str:
        if self.endpoint.startswith("tcp://"):
            return f"tidelog://{self.endpoint.removeprefix('tcp://')}/"
        return f"tidelog+unix://{self.endpoint.removeprefix('unix://')}"

    def start(self) -> None:
        """Start it and wait until it serves."""
        self._child = Child(
            "tests.process.server_child", str(self._path), self.endpoint, str(self._streams)
        )
        [self.endpoint, *_] = [line.decode() for line in self._child.wait_for_lines()]

    def kill(self) -> None:
        """SIGKILL."""
        if self._child is not None:
            with self._child as child:
                for _ in child.kill():
                    pass
            self._child = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()
