"""When a simulated disk fails: planned errors, planned crashes, syncs that do nothing.

Invariants:
  F1  after a crash no call gets through.
  F2  the same calls meet the same faults: there is neither clock nor randomness.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from tidelog.invariants import check
from tidelog.testing.disk_effects import Op

PathPredicate: TypeAlias = Callable[[str], bool]


class SimulatedCrash(BaseException):
    """The machine went down.  Not an Exception, so that no handler takes it for an error."""


@dataclass(slots=True)
class Fault:
    """An error that some calls will meet."""

    operation: Op
    path_suffix: str
    error: int
    times: int
    after: int
    partial: bool


def disk_error(code: int, path: str) -> OSError:
    """The OSError (of the right subclass) that a real disk would raise."""
    return OSError(code, f"simulated {errno.errorcode[code]}", path)


class FaultPlan:
    """Counts the calls of one disk and says which of them fail."""

    __slots__ = (
        "_calls_left",
        "_cut",
        "_faults",
        "_ignored_dir_syncs",
        "_ignored_syncs",
        "crashed",
        "last_call",
        "operations",
    )

    def __init__(self) -> None:
        self.operations = 0
        self.last_call: tuple[Op, str] | None = None
        self.crashed = False
        self._calls_left: int | None = None
        self._cut = False
        self._faults: list[Fault] = []
        self._ignored_syncs: list[PathPredicate] = []
        self._ignored_dir_syncs: list[PathPredicate] = []

    def for_copy(self) -> FaultPlan:
        """The plan of a copied disk: it ignores the same syncs, and has no other faults."""
        plan = FaultPlan()
        plan._ignored_syncs = list(self._ignored_syncs)
        plan._ignored_dir_syncs = list(self._ignored_dir_syncs)
        return plan

    def arm_crash(self, calls: int, *, cut: bool) -> None:
        check(calls >= 1, "a crash needs a call to follow")
        self._calls_left = calls
        self._cut = cut

    def disarm(self) -> None:
        check(not self.crashed, "F1: a crash cannot be taken back")
        self._calls_left = None

    def add(self, fault: Fault) -> None:
        self._faults.append(fault)

    def ignore_sync(self, predicate: PathPredicate) -> None:
        self._ignored_syncs.append(predicate)

    def ignore_sync_dir(self, predicate: PathPredicate) -> None:
        self._ignored_dir_syncs.append(predicate)

    def ignores(self, operation: Op, path: str) -> bool:
        """Whether this sync returns without doing anything."""
        predicates = self._ignored_syncs if operation is Op.SYNC else self._ignored_dir_syncs
        return any(predicate(path) for predicate in predicates)

    def enter(self) -> None:
        """Before any call: F1."""
        if self.crashed or self._calls_left == 0:
            self.crashed = True
            raise SimulatedCrash(self._story())

    def count(self, operation: Op, path: str) -> bool:
        """Count a call that changes something; True when the crash cuts this very call."""
        self.operations += 1
        self.last_call = (operation, path)
        if self._calls_left is None:
            return False
        self._calls_left -= 1
        self.crashed = self._cut and self._calls_left == 0
        return self.crashed

    def due(self, operation: Op, *paths: str) -> Fault | None:
        """The fault that this call meets, if any."""
        for fault in self._faults:
            if fault.operation is not operation or fault.times == 0:
                continue
            if not any(path.endswith(fault.path_suffix) for path in paths):
                continue
            if fault.after > 0:
                fault.after -= 1
                continue
            fault.times -= 1
            return fault
        return None

    def crash(self) -> SimulatedCrash:
        return SimulatedCrash(self._story())

    def _story(self) -> str:
        if self.last_call is None:
            return "the disk is down"
        operation, path = self.last_call
        return f"the disk went down at call {self.operations}: {operation.value} {path}"
