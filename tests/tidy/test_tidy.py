"""Rules about the source that no other tool checks, one test each; messages name file:line.

Each rule is a function from source text to the lines that break it, so that the tables at the end
can show that it catches what it is for.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "tidelog"
PURE = ("core", "formats")
PURE_FILES = ("types.py", "errors.py", "limits.py", "invariants.py")

IMPURE_MODULES = frozenset(
    (
        "asyncio",
        "concurrent",
        "fcntl",
        "logging",
        "mmap",
        "multiprocessing",
        "os",
        "random",
        "secrets",
        "select",
        "selectors",
        "shutil",
        "signal",
        "socket",
        "ssl",
        "subprocess",
        "tempfile",
        "threading",
        "time",
        "uuid",
        "weakref",
    )
)
IMPURE_CALLS = frozenset(("open", "print", "input", "__import__", "id", "hash"))
DISK_MODULES = frozenset(("os", "fcntl", "mmap", "shutil", "tempfile"))
DISK_MODULE_USERS = frozenset(
    (
        "cli/bench_embedded.py",
        "cli/bench_pair.py",
        "datastore/endpoints.py",
        "net/security.py",
        "pipeline/session.py",
        "runtime/config_sources.py",
        "runtime/local_nodes.py",
    )
)
"""Files outside storage that may speak to the operating system."""

FUNCTION_LINES_MAX = 69
PURE_FILE_LINES_MAX = 400
FILE_LINES_MAX = 500
BANNED_NAMES = frozenset(
    ("common", "helper", "helpers", "manager", "managers", "misc", "util", "utils")
)
"""They say nothing about what is inside."""

# Put together from parts, so that this file keeps its own rules.
LEFT_OPEN = re.compile(r"\b(?:" + "|".join(("FIX" + "ME", "TO" + "DO", "X" * 3)) + r")\b")
MACHINE_PATH = re.compile(
    r"(?<![\w.~*}/-])/(?:" + "|".join(("work", "tmp", "root")) + r")(?![\w-])"
)
REGISTRIES = (
    ("pypi", "org"),
    ("pythonhosted", "org"),
    ("npmjs", "org"),
    ("npmjs", "com"),
    ("yarnpkg", "com"),
    ("crates", "io"),
    ("rubygems", "org"),
    ("anaconda", "org"),
    ("maven", "org"),
    ("maven", "apache", "org"),
    ("golang", "org"),
    ("docker", "io"),
    ("ghcr", "io"),
    ("quay", "io"),
)
REGISTRY_HOST = re.compile("|".join(r"\.".join(host) for host in REGISTRIES), re.IGNORECASE)
INVARIANTS = re.compile(r"\b[A-Z]\d+\b|\b[Nn]o state\b")
HEADING = re.compile(r"# \S")
FENCE = re.compile(r"\s*(```|~~~)")
GENERATED = re.compile(r"(?:^|/)(?:\.(?!ci/)[^/]*|build|dist|__pycache__)/")

Finding = tuple[int, str]
Rule = Callable[[str], Iterator[Finding]]


# --- the files ---------------------------------------------------------------------------------


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def tracked_files() -> list[Path]:
    """What is, or would be, in version control; without git, what lies in the tree."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, timeout=60)
    except (OSError, subprocess.CalledProcessError):
        walked = (path for path in ROOT.rglob("*") if path.is_file())
        return sorted(path for path in walked if not GENERATED.search(relative(path)))
    names = sorted(set(listed.stdout.decode().split("\0")) - {""})
    return [ROOT / name for name in names if (ROOT / name).is_file()]


def text_files() -> Iterator[tuple[Path, str]]:
    for path in tracked_files():
        try:
            yield path, path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # Golden vectors and other bytes.


def python_files(*names: str) -> list[Path]:
    """Python files of the source, or of the named places below it."""
    places = [SOURCE / name for name in names] if names else [SOURCE]
    return sorted(
        path
        for place in places
        for path in ([place] if place.suffix == ".py" else place.rglob("*.py"))
    )


def findings(paths: list[Path], rule: Rule) -> list[str]:
    """``file:line what`` for each break of a rule."""
    return [
        f"{relative(path)}:{line} {what}"
        for path in paths
        for line, what in sorted(rule(path.read_text(encoding="utf-8")))
    ]


def all_python() -> list[Path]:
    return [path for path in tracked_files() if path.suffix == ".py"]


def refuse(found: list[str], rule: str) -> None:
    assert not found, f"{rule}:\n  " + "\n  ".join(found)


# --- the rules ---------------------------------------------------------------------------------


def imports(source: str) -> Iterator[Finding]:
    """Every imported module, by its full name."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.lineno, node.module


def imports_of(modules: frozenset[str]) -> Rule:
    def rule(source: str) -> Iterator[Finding]:
        for line, name in imports(source):
            if name.split(".")[0] in modules:
                yield line, f"imports {name}"

    return rule


def impure_calls(source: str) -> Iterator[Finding]:
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in IMPURE_CALLS:
                yield node.lineno, f"calls {name}()"
            case ast.Attribute(value=ast.Name(id="np" | "numpy"), attr="random"):
                yield node.lineno, "uses numpy.random"


def async_code(source: str) -> Iterator[Finding]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.AsyncFunctionDef | ast.AsyncFor | ast.AsyncWith | ast.Await):
            yield node.lineno, "is asynchronous"


def long_functions(source: str) -> Iterator[Finding]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                yield node.lineno, f"{node.name} has {lines} lines"


def file_longer_than(limit: int) -> Rule:
    def rule(source: str) -> Iterator[Finding]:
        lines = len(source.splitlines())
        if lines > limit:
            yield lines, f"has {lines} lines, the limit is {limit}"

    return rule


def is_set_type(annotation: ast.expr) -> bool:
    """Whether an annotation, or a part of a union, is a set."""
    match annotation:
        case ast.BinOp(left=left, right=right, op=ast.BitOr()):
            return is_set_type(left) or is_set_type(right)
        case ast.Subscript(value=value):
            return is_set_type(value)
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in {"set", "frozenset", "Set", "AbstractSet", "MutableSet"}
    return False


def set_names(tree: ast.Module) -> frozenset[str]:
    """Names and attributes that the module annotates as sets or assigns sets to."""
    names: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.AnnAssign(target=target, annotation=annotation) if is_set_type(annotation):
                names.add(ast.unparse(target).removeprefix("self."))
            case ast.arg(arg=name, annotation=ast.expr() as annotation) if is_set_type(annotation):
                names.add(name)
            case ast.Assign(targets=[target], value=value) if is_set(value, frozenset()):
                names.add(ast.unparse(target).removeprefix("self."))
    return frozenset(names)


def is_set(node: ast.expr, names: frozenset[str]) -> bool:
    """Whether an expression is surely a set; ``names`` are known to be."""
    match node:
        case ast.Set() | ast.SetComp():
            return True
        case ast.Call(func=ast.Name(id="set" | "frozenset")):
            return True
        case ast.Call(func=ast.Attribute(value=value, attr=method)):
            operations = {"union", "difference", "intersection", "symmetric_difference", "copy"}
            return method in operations and is_set(value, names)
        case ast.BinOp(left=left, right=right, op=ast.Sub() | ast.BitAnd() | ast.BitOr()):
            return any(is_set(side, names) or is_keys_view(side) for side in (left, right))
        case ast.Name() | ast.Attribute():
            return ast.unparse(node).removeprefix("self.") in names
    return False


def is_keys_view(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".keys")


def set_iterations(source: str) -> Iterator[Finding]:
    """Loops, comprehensions and copies that see a set in the order of its hashes."""
    tree = ast.parse(source)
    names = set_names(tree)
    ordered = {"list", "tuple", "iter", "enumerate", "map", "zip", "next", "array", "bytes"}
    for node in ast.walk(tree):
        seen: list[ast.expr] = []
        match node:
            case ast.For(iter=iterated):
                seen = [iterated]
            case ast.ListComp() | ast.GeneratorExp() | ast.DictComp():
                seen = [generator.iter for generator in node.generators]
            case ast.Starred(value=value):
                seen = [value]
            case ast.Call(func=ast.Name(id=name), args=arguments) if name in ordered:
                seen = arguments
            case ast.Call(func=ast.Attribute(attr="join" | "extend"), args=arguments):
                seen = arguments
            case ast.Call(func=ast.Attribute(value=value, attr="pop"), args=[]):
                seen = [value]
        for expression in seen:
            if is_set(expression, names):
                yield expression.lineno, f"iterates over a set: {ast.unparse(expression)}"


def left_open(source: str) -> Iterator[Finding]:
    for number, line in enumerate(source.splitlines(), 1):
        if found := LEFT_OPEN.search(line):
            yield number, f"says {found.group()}"


def swallowed_errors(source: str) -> Iterator[Finding]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ExceptHandler):
            if node.type is None:
                yield node.lineno, "has a bare except"
            elif is_broad(node.type) and all(map(does_nothing, node.body)):
                yield node.lineno, f"swallows {ast.unparse(node.type)}"
        elif isinstance(node, ast.Call) and is_suppress(node):
            yield node.lineno, "suppresses every error"


def is_suppress(call: ast.Call) -> bool:
    return ast.unparse(call.func).endswith("suppress") and any(map(is_broad, call.args))


def is_broad(caught: ast.expr) -> bool:
    caught_types = caught.elts if isinstance(caught, ast.Tuple) else [caught]
    return any(ast.unparse(one) in {"Exception", "BaseException"} for one in caught_types)


def does_nothing(statement: ast.stmt) -> bool:
    constant = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return constant or isinstance(statement, ast.Pass | ast.Continue)


def sleeps(source: str) -> Iterator[Finding]:
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Attribute(value=ast.Name(id="time"), attr="sleep"):
                yield node.lineno, "sleeps"
            case ast.ImportFrom(module="time", names=names):
                if any(alias.name == "sleep" for alias in names):
                    yield node.lineno, "imports sleep"


def missing_docstrings(source: str) -> Iterator[Finding]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef) and not ast.get_docstring(node):
            yield node.lineno, f"{node.name} has no docstring"


def missing_invariants(source: str) -> Iterator[Finding]:
    if not INVARIANTS.search(ast.get_docstring(ast.parse(source)) or ""):
        yield 1, 'the docstring numbers no invariants (R1, ...) and does not say "No state"'


def repeated_tests(source: str) -> Iterator[Finding]:
    tree = ast.parse(source)
    for scope in ast.walk(tree):
        if not isinstance(scope, ast.Module | ast.ClassDef):
            continue
        functions = [
            node for node in scope.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ]
        counts = Counter(node.name for node in functions)
        for node in functions:
            if node.name.startswith("test_") and counts[node.name] > 1:
                yield node.lineno, f"{node.name} is there {counts[node.name]} times"


def wrong_headings(text: str) -> Iterator[Finding]:
    """All but the first H1 outside code blocks, or line 1 when there is none."""
    headings: list[int] = []
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if FENCE.match(line):
            fenced = not fenced
        elif not fenced and HEADING.match(line):
            headings.append(number)
    for number in headings[1:] if headings else [1]:
        yield number, "is a second H1" if headings else "has no H1"


def hosts_and_paths(text: str) -> Iterator[Finding]:
    for number, line in enumerate(text.splitlines(), 1):
        for pattern in (REGISTRY_HOST, MACHINE_PATH):
            if found := pattern.search(line):
                yield number, f"names {found.group()}"


def limits_defined(source: str) -> dict[str, int]:
    """Constants of a module and their lines, without those that others are made of (units)."""
    lines: dict[str, int] = {}
    parts: set[str] = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
            lines[node.target.id] = node.lineno
            parts |= names_used(node.value)
    return {name: line for name, line in lines.items() if name not in parts}


def names_used(tree: ast.AST) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name):
                found.add(name)
            case ast.ImportFrom(names=aliases):
                found.update(alias.name for alias in aliases)
    return found


# --- the tests ---------------------------------------------------------------------------------


def test_core_and_formats_import_nothing_impure() -> None:
    pure = python_files(*PURE, *PURE_FILES)
    refuse(findings(pure, imports_of(IMPURE_MODULES)), "core and formats are pure")


def test_core_and_formats_call_nothing_impure() -> None:
    pure = python_files(*PURE, *PURE_FILES)
    refuse(findings(pure, impure_calls), "core and formats are pure")


def test_core_and_formats_are_not_asynchronous() -> None:
    refuse(findings(python_files(*PURE), async_code), "core and formats run to completion")


def test_core_does_not_iterate_over_sets() -> None:
    found = findings(python_files("core"), set_iterations)
    refuse(found, "the order of a set differs between processes: sort it or use a dict")


def test_core_modules_state_their_invariants() -> None:
    modules = [path for path in python_files("core") if path.name != "__init__.py"]
    refuse(findings(modules, missing_invariants), "tests quote invariants by their numbers")


def test_functions_fit_on_a_screen() -> None:
    refuse(findings(python_files(), long_functions), f"at most {FUNCTION_LINES_MAX} lines")


def test_core_and_format_files_stay_small() -> None:
    found = findings(python_files(*PURE), file_longer_than(PURE_FILE_LINES_MAX))
    refuse(found, "would two names tell more than one?")


def test_source_files_stay_small() -> None:
    found = findings(python_files(), file_longer_than(FILE_LINES_MAX))
    refuse(found, "would two names tell more than one?")


def test_nothing_is_left_open() -> None:
    refuse(findings(all_python(), left_open), "finish it, or write an issue")


def test_no_error_is_swallowed() -> None:
    refuse(findings(all_python(), swallowed_errors), "name the error and do something about it")


def test_modules_have_telling_names() -> None:
    found = [
        f"{relative(path)}:1"
        for path in all_python()
        if BANNED_NAMES & set(path.stem.split("_")) or path.parent.name in BANNED_NAMES
    ]
    refuse(found, "name the module after what is inside")


def test_every_error_says_what_it_means() -> None:
    refuse(findings(python_files("errors.py"), missing_docstrings), "users read these")


def test_every_limit_is_used() -> None:
    path = SOURCE / "limits.py"
    used: set[str] = set()
    for other in python_files():
        if other != path:
            used |= names_used(ast.parse(other.read_text(encoding="utf-8")))
    defined = limits_defined(path.read_text(encoding="utf-8"))
    found = [
        f"{relative(path)}:{line} {name}" for name, line in defined.items() if name not in used
    ]
    refuse(found, "a bound that nothing checks is no bound")


def test_only_storage_speaks_to_the_operating_system() -> None:
    others = [
        path
        for path in python_files()
        if path.relative_to(SOURCE).parts[0] != "storage"
        and str(path.relative_to(SOURCE)) not in DISK_MODULE_USERS
    ]
    refuse(findings(others, imports_of(DISK_MODULES)), "go through the Vfs")


def test_the_source_never_sleeps() -> None:
    refuse(findings(python_files(), sleeps), "wait for a condition, with a deadline")


def test_only_process_tests_sleep() -> None:
    process = ROOT / "tests" / "process"
    tests = [path for path in all_python() if ROOT / "tests" in path.parents]
    tests = [path for path in tests if process not in path.parents]
    refuse(findings(tests, sleeps), "wait for a condition, with a deadline")


def test_test_names_are_unique_in_their_file() -> None:
    tests = [path for path in all_python() if path.name.startswith("test_")]
    refuse(findings(tests, repeated_tests), "the second hides the first")


def test_markdown_files_have_one_h1() -> None:
    pages = [path for path in tracked_files() if path.suffix == ".md"]
    refuse(findings(pages, wrong_headings), "a page has one title")


def test_no_file_names_a_registry_host_or_a_machine_path() -> None:
    found = [
        f"{relative(path)}:{line} {what}"
        for path, text in text_files()
        for line, what in hosts_and_paths(text)
    ]
    refuse(found, "the tree must work on any machine")


# --- each rule catches what it is for ------------------------------------------------------------

BROKEN: list[tuple[Rule, str]] = [
    (imports_of(IMPURE_MODULES), "def f():\n    import time"),
    (imports_of(IMPURE_MODULES), "from os.path import join"),
    (impure_calls, "data = open('x').read()"),
    (impure_calls, "import numpy as np\nx = np.random.default_rng()"),
    (async_code, "async def f(): ..."),
    (long_functions, "def f():\n" + "    x = 1\n" * FUNCTION_LINES_MAX),
    (file_longer_than(3), "\n" * 4),
    (set_iterations, "for x in {1, 2}: ..."),
    (set_iterations, "def f(a: set[int]) -> None:\n    b = [x for x in a]"),
    (set_iterations, "a = set()\nb = list(a)"),
    (set_iterations, "def f(a: dict[int, int], b: dict[int, int]):\n    return (*(a.keys() - b),)"),
    (
        set_iterations,
        "class A:\n    x: frozenset[int]\n    def f(self):\n        for y in self.x: ...",
    ),
    (left_open, "# " + "TO" + "DO later"),
    (swallowed_errors, "try: ...\nexcept: raise"),
    (swallowed_errors, "try: ...\nexcept (OSError, Exception): pass"),
    (swallowed_errors, "with suppress(Exception): ..."),
    (sleeps, "import time\ntime.sleep(1)"),
    (sleeps, "from time import sleep"),
    (missing_docstrings, "class A(Exception): pass"),
    (missing_invariants, '"""A machine."""'),
    (repeated_tests, "def test_a(): ...\ndef test_a(): ..."),
    (wrong_headings, "# A\n\n# B"),
    (wrong_headings, "## A"),
    (hosts_and_paths, "see https://" + ".".join(("files", "pythonhosted", "org"))),
    (hosts_and_paths, "cd " + "/" + "work/main"),
    (hosts_and_paths, '"' + "/" + 'tmp"'),
]

SOUND: list[tuple[Rule, str]] = [
    (set_iterations, "a = set()\nfor x in sorted(a): ..."),
    (set_iterations, "a = [1]\nfor x in a: ...\nb = a.pop()"),
    (swallowed_errors, "try: ...\nexcept FileNotFoundError: pass"),
    (missing_invariants, '"""Sizes.  No state."""'),
    (missing_invariants, '"""A machine.\n\nR1  committed <= durable\n"""'),
    (repeated_tests, "class A:\n    def test_a(self): ...\nclass B:\n    def test_a(self): ..."),
    (wrong_headings, "# A\n\n```\n# not a heading\n```"),
    (hosts_and_paths, "the frame/work of src/tmp and ./work"),
]


@pytest.mark.parametrize(("rule", "source"), BROKEN)
def test_a_broken_rule_is_found(rule: Rule, source: str) -> None:
    assert list(rule(source))


@pytest.mark.parametrize(("rule", "source"), SOUND)
def test_sound_source_is_left_alone(rule: Rule, source: str) -> None:
    assert not list(rule(source))
