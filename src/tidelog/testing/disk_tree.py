"""Directories of a simulated disk: which names are durable, and which are not yet.

Invariants:
  N1  readers see every change of names at once: the volatile entries.
  N2  durable and volatile entries differ only by the pending changes of names.
  N3  a pending change never overrides a later one that is durable.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, TypeAlias

from tidelog.invariants import InvariantViolation
from tidelog.testing.disk_effects import Op
from tidelog.testing.disk_faults import disk_error
from tidelog.testing.disk_file import FileNode

ROOT: Final = 1
SYMLINK_HOPS_MAX: Final = 40


class DirNode:
    """The names of one directory, each with the number of its node."""

    __slots__ = ("durable", "entries", "links", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.links = 0
        self.entries: dict[str, int] = {}
        self.durable: dict[str, int] = {}

    def copy(self) -> DirNode:
        node = DirNode(self.number)
        node.links = self.links
        node.entries = self.entries.copy()
        node.durable = self.durable.copy()
        return node


class LinkNode:
    """A symbolic link."""

    __slots__ = ("links", "number", "target")

    def __init__(self, number: int, target: str) -> None:
        self.number = number
        self.links = 0
        self.target = target

    def copy(self) -> LinkNode:
        node = LinkNode(self.number, self.target)
        node.links = self.links
        return node


Node: TypeAlias = FileNode | DirNode | LinkNode


class Setting(NamedTuple):
    """One name takes a new meaning; ``node`` 0 means that the name goes away."""

    directory: int
    name: str
    node: int


@dataclass(frozen=True, slots=True)
class NameChange:
    """One call that changes names: all its settings survive a crash, or none (V3)."""

    sequence: int
    kind: Op
    path: str
    target: str
    settings: tuple[Setting, ...]
    stuck: bool = False
    """A sync of the directory failed: later ones do not make this change durable any more."""

    def touches(self, directory: int) -> bool:
        return any(setting.directory == directory for setting in self.settings)


class Place(NamedTuple):
    """Where a path leads: directories from the root to its parent, last name, node if any."""

    parents: list[DirNode]
    name: str
    node: Node | None

    @property
    def parent(self) -> DirNode:
        return self.parents[-1]


def canonical(path: str) -> str:
    """The one spelling of a path: absolute, without empty parts."""
    return "/" + "/".join(_parts(path))


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part and part != "."]


class Tree:
    """All nodes of a disk, and the changes of names that are not durable yet."""

    __slots__ = ("_next_node", "_next_sequence", "_orphans", "changes", "nodes")

    def __init__(self, nodes: dict[int, Node] | None = None) -> None:
        self.nodes: dict[int, Node] = nodes or {ROOT: DirNode(ROOT)}
        self.changes: list[NameChange] = []
        self._next_node = max(self.nodes) + 1
        self._next_sequence = 0
        self._orphans = False

    def walk(self, path: str, *, follow: bool = True) -> Place:
        """Find a path; ``follow`` says whether a symbolic link at its end is followed."""
        todo = _parts(path)[::-1]
        if not path:
            raise disk_error(errno.ENOENT, path)
        parents = [self.directory(ROOT)]
        hops = 0
        while todo:
            part = todo.pop()
            if part == "..":
                del parents[max(1, len(parents) - 1) :]
                continue
            node = self.nodes.get(parents[-1].entries.get(part, 0))
            if isinstance(node, LinkNode) and (todo or follow):
                hops += 1
                if hops > SYMLINK_HOPS_MAX:
                    raise disk_error(errno.ELOOP, path)
                todo += _parts(node.target)[::-1]
            elif not todo:
                return Place(parents, part, node)
            elif node is None:
                raise disk_error(errno.ENOENT, path)
            elif not isinstance(node, DirNode):
                raise disk_error(errno.ENOTDIR, path)
            else:
                parents.append(node)
        return Place(parents[:-1] or parents, "", parents[-1])

    def directory(self, number: int) -> DirNode:
        node = self.nodes[number]
        if not isinstance(node, DirNode):
            raise InvariantViolation("names belong to directories")
        return node

    def new_file(self) -> FileNode:
        node = FileNode(self._take_number())
        self.nodes[node.number] = node
        return node

    def new_directory(self) -> DirNode:
        node = DirNode(self._take_number())
        self.nodes[node.number] = node
        return node

    def new_symlink(self, target: str) -> LinkNode:
        node = LinkNode(self._take_number(), target)
        self.nodes[node.number] = node
        return node

    def next_sequence(self) -> int:
        self._next_sequence += 1
        return self._next_sequence

    def change(self, kind: Op, path: str, *settings: Setting, target: str = "") -> None:
        """Change names, for readers at once, for a crash not yet."""
        for directory, name, number in settings:
            entries = self.directory(directory).entries
            self._set_links(entries.pop(name, 0), -1)
            if number:
                entries[name] = number
                self._set_links(number, +1)
        self.changes.append(NameChange(self.next_sequence(), kind, path, target, settings))

    def sync_names(self, directory: DirNode) -> None:
        """Make the names of one directory durable."""
        waiting: list[NameChange] = []
        for change in self.changes:
            if change.stuck or not change.touches(directory.number):
                waiting.append(change)
                continue
            self._apply_durably(change.settings)
            # N3: what was said of these names before must not come back after them.
            waiting = [rest for old in waiting for rest in _without(old, change.settings)]
        self.changes = waiting
        self.drop_orphans()

    def add_durable_file(self, directory: DirNode, name: str) -> FileNode:
        """A file whose name no crash can take away."""
        node = self.new_file()
        node.links = 1
        directory.entries[name] = directory.durable[name] = node.number
        return node

    def fail_sync(self, directory: DirNode) -> None:
        """A sync failed: its changes may survive a crash or not, and no later sync helps."""
        self.changes = [
            replace(change, stuck=True) if change.touches(directory.number) else change
            for change in self.changes
        ]

    def drop_orphans(self) -> None:
        """Forget nodes that no name can lead to any more, whatever a crash does."""
        if not self._orphans:
            return
        named = {ROOT}
        for node in self.nodes.values():
            if isinstance(node, DirNode):
                named.update(node.entries.values(), node.durable.values())
        for change in self.changes:
            named.update(setting.node for setting in change.settings)
        self.nodes = {number: node for number, node in self.nodes.items() if number in named}
        # Some may have no name for readers, and still have one for a crash: look again later.
        self._orphans = any(node.links == 0 for node in self.nodes.values() if node.number != ROOT)

    def copy(self) -> Tree:
        tree = Tree({number: node.copy() for number, node in self.nodes.items()})
        tree.changes = list(self.changes)
        tree._next_node = self._next_node
        tree._next_sequence = self._next_sequence
        tree._orphans = self._orphans
        return tree

    def _take_number(self) -> int:
        self._next_node += 1
        return self._next_node - 1

    def _set_links(self, number: int, difference: int) -> None:
        node = self.nodes.get(number)
        if node is not None:
            node.links += difference
            self._orphans = self._orphans or node.links == 0

    def _apply_durably(self, settings: Iterable[Setting]) -> None:
        for directory, name, number in settings:
            set_name(self.directory(directory).durable, name, number)


def set_name(names: dict[str, int], name: str, number: int) -> None:
    if number:
        names[name] = number
    else:
        names.pop(name, None)


def _without(change: NameChange, settings: Sequence[Setting]) -> list[NameChange]:
    """``change`` without the names of ``settings``; nothing when none of its names is left."""
    gone = {(setting.directory, setting.name) for setting in settings}
    rest = tuple(s for s in change.settings if (s.directory, s.name) not in gone)
    if len(rest) == len(change.settings):
        return [change]
    return [replace(change, settings=rest)] if rest else []
