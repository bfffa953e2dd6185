"""A promise that a simulation saw broken.  No state."""

from __future__ import annotations


class Violation(AssertionError):
    """A checker found the promise broken that it stands for."""

    def __init__(self, checker: str, message: str) -> None:
        super().__init__(f"{checker}: {message}")
        self.checker = checker
        self.message = message

    def __reduce__(self) -> tuple[type[Violation], tuple[str, str]]:
        return Violation, (self.checker, self.message)
