"""What is left of a simulated disk after a crash.

Input: the tree of the disk and one choice per pending effect.  Output: a new tree.  No state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from tidelog.invariants import InvariantViolation, check
from tidelog.testing.disk_effects import Choice, Effect, Op
from tidelog.testing.disk_file import FileNode, PendingWrite, put_chosen
from tidelog.testing.disk_tree import ROOT, DirNode, LinkNode, NameChange, Node, Tree, set_name

Pending: TypeAlias = NameChange | tuple[FileNode, PendingWrite]


def pending(tree: Tree) -> list[Pending]:
    """Everything that a crash may take away, in the order of the calls."""
    tree.drop_orphans()
    found: list[tuple[int, Pending]] = [(change.sequence, change) for change in tree.changes]
    for node in tree.nodes.values():
        if isinstance(node, FileNode):
            found += [(write.sequence, (node, write)) for write in node.pending]
    found.sort(key=lambda item: item[0])
    return [item for _, item in found]


def describe(index: int, item: Pending) -> Effect:
    if isinstance(item, NameChange):
        return Effect(index, item.kind, item.path, target=item.target)
    _, write = item
    return Effect(index, Op.WRITE, write.path, offset=write.offset, length=len(write.data))


def survive(tree: Tree, items: Sequence[Pending], choices: Sequence[Choice]) -> Tree:
    """The tree that the next start finds: durable state plus the chosen effects, in order."""
    check(len(items) == len(choices), "one choice per pending effect")
    names: dict[int, dict[str, int]] = {
        node.number: node.durable.copy()
        for node in tree.nodes.values()
        if isinstance(node, DirNode)
    }
    contents: dict[int, bytearray] = {}
    for item, choice in zip(items, choices, strict=True):
        if choice is Choice.LOST:
            continue
        if isinstance(item, NameChange):
            check(choice is Choice.KEPT, "a change of names is not torn")
            for directory, name, number in item.settings:
                set_name(names[directory], name, number)
        else:
            node, write = item
            if node.number not in contents:
                contents[node.number] = bytearray(node.durable())
            put_chosen(contents[node.number], write, choice)
    return _reachable(tree, names, contents)


def _reachable(
    tree: Tree, names: dict[int, dict[str, int]], contents: dict[int, bytearray]
) -> Tree:
    """A tree of everything that has a name; what lost its last name is gone."""
    root = DirNode(ROOT)
    nodes: dict[int, Node] = {ROOT: root}
    todo = [root]
    while todo:
        directory = todo.pop()
        directory.entries = names[directory.number]
        directory.durable = directory.entries.copy()
        for number in directory.entries.values():
            node = nodes.get(number)
            if node is None:
                node = nodes[number] = _reborn(tree.nodes[number], contents)
                if isinstance(node, DirNode):
                    todo.append(node)
            node.links += 1
    return Tree(nodes)


def _reborn(node: Node, contents: dict[int, bytearray]) -> Node:
    match node:
        case DirNode():
            return DirNode(node.number)
        case LinkNode():
            return LinkNode(node.number, node.target)
        case FileNode():
            content = contents.get(node.number)
            base = node.durable() if content is None else bytes(content)
            return FileNode(node.number, base)


def fingerprint(tree: Tree) -> int:
    """Equal for equal trees without pending effects, within one process."""
    parts: list[tuple[int, object, int]] = []
    for number in sorted(tree.nodes):
        node = tree.nodes[number]
        match node:
            case DirNode():
                parts.append((number, tuple(sorted(node.entries.items())), 0))
            case LinkNode():
                parts.append((number, node.target, 1))
            case FileNode():
                if node.pending:
                    raise InvariantViolation("only a disk at rest has a fingerprint")
                content = node.durable()
                parts.append((number, content, len(content)))
    return hash(tuple(parts))
