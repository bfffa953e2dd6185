"""Reads a configuration: defaults, then a file in TOML, then the environment.  No state.

``TIDELOG_NODE__LISTEN`` stands for ``listen`` in ``[node]``; lists are separated by commas there.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from enum import Enum
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Final, Literal, TypeAlias, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from tidelog.errors import BadOption
from tidelog.limits import MIB
from tidelog.runtime.config import Config, check_config

DEFAULT: Final = "default"
_FILE_BYTES_MAX: Final = MIB
_INT_BITS_SHOWN: Final = 1024
_VARIABLE: Final = re.compile(r"TIDELOG_([A-Z0-9]+)__(\w+)")
_HEADER: Final = re.compile(r"\s*\[\s*([\w.-]+)\s*\]")
_ASSIGNMENT: Final = re.compile(r"\s*([\w.-]+)\s*=")

Value: TypeAlias = object


class Key(msgspec.Struct, frozen=True):
    """One thing that can be configured."""

    section: str
    name: str
    hint: Any
    """The annotation of the field, as ``msgspec.convert`` takes it."""
    default: Value

    @property
    def path(self) -> str:
        """``section.name``."""
        return f"{self.section}.{self.name}"

    @property
    def variable(self) -> str:
        """The variable of the environment that overrides it."""
        return f"TIDELOG_{self.section.upper()}__{self.name.upper()}"

    @property
    def is_list(self) -> bool:
        """Whether it has several values."""
        return get_origin(_parts(self.hint)[0]) is tuple

    @property
    def allowed(self) -> str:
        """What may be written there, in words."""
        return _allowed(*_parts(self.hint))

    @property
    def text(self) -> str:
        """What it means."""
        return " ".join(each.description for each in _parts(self.hint)[1] if each.description)


class Loaded(msgspec.Struct, frozen=True):
    """A configuration, and where each of its values comes from."""

    config: Config
    origins: Mapping[str, str]
    """``section.name`` → ``default``, ``FILE:LINE`` or ``environment VARIABLE``."""


def load_config(path: str | Path | None, environment: Mapping[str, str] | None = None) -> Loaded:
    """Read and check everything; BadOption says what is wrong, where, and what is allowed.

    Without ``environment`` that of the process counts.
    """
    loaded = read_config(path, environment)
    check_config(loaded.config)
    return loaded


def read_config(path: str | Path | None, environment: Mapping[str, str] | None = None) -> Loaded:
    """The same without the checks of what several values together must be."""
    environment = os.environ if environment is None else environment
    values: dict[str, Value] = {}
    origins = dict.fromkeys(KEYS, DEFAULT)
    for key, value, origin in _from_file(path):
        values[key.path] = _convert(key, value, origin)
        origins[key.path] = origin
    for key, text, origin in _from_environment(environment):
        values[key.path] = _convert(key, _split(text) if key.is_list else text, origin)
        origins[key.path] = origin
    sections: dict[str, dict[str, Value]] = {section: {} for section in SECTIONS}
    for name, value in values.items():
        sections[KEYS[name].section][KEYS[name].name] = value
    made = {section: SECTIONS[section](**given) for section, given in sections.items()}
    return Loaded(Config(**made), origins)


def value_of(config: Config, key: Key) -> Value:
    """What a configuration says of a key."""
    return getattr(getattr(config, key.section), key.name)


def written(value: Value) -> str:
    """A value as it is written in a file."""
    match value:
        case Enum():
            return written(value.value)
        case bool():
            return "true" if value else "false"
        case int() if value.bit_length() > _INT_BITS_SHOWN:
            return hex(value)  # Python refuses to write very long ones in decimals.
        case tuple():
            return "[" + ", ".join(map(written, value)) + "]"
        case str():
            return msgspec.json.encode(value).decode()
        case float():
            return f"{value:g}" if value < 1_000_000 else str(value)
    return str(value)


# -- the keys --------------------------------------------------------------------------------------


def _sections() -> dict[str, Any]:
    return {name: hint for name, hint in get_type_hints(Config).items() if hint is not NoneType}


def _keys() -> Iterator[Key]:
    for section, struct in SECTIONS.items():
        hints = get_type_hints(struct, include_extras=True)
        for field in msgspec.structs.fields(struct):
            yield Key(section, field.name, hints[field.name], field.default)


def _parts(hint: Any) -> tuple[Any, tuple[Meta, ...]]:
    if get_origin(hint) is Annotated:
        base, *extras = get_args(hint)
        return base, tuple(extra for extra in extras if isinstance(extra, Meta))
    return hint, ()


SECTIONS: Final[Mapping[str, Any]] = _sections()
KEYS: Final[Mapping[str, Key]] = {key.path: key for key in _keys()}


def _allowed(kind: Any, meta: tuple[Meta, ...]) -> str:
    low = next((each.ge for each in meta if each.ge is not None), None)
    high = next((each.le for each in meta if each.le is not None), None)
    if get_origin(kind) is tuple:
        return f"a list of {_allowed(get_args(kind)[0], ())}"
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(map(str, get_args(kind)))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return "any of " + ", ".join(str(each.value) for each in kind)
    if kind in (int, float):
        name = "a whole number" if kind is int else "a number"
        return f"{name} from {low} to {high}" if low is not None else name
    return "text"


# -- the sources -----------------------------------------------------------------------------------


def _from_file(path: str | Path | None) -> Iterator[tuple[Key, Value, str]]:
    if path is None:
        return
    text = _read(Path(path))
    try:
        found = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # Beside TOMLDecodeError: numbers without end.
        raise BadOption(f"{path} is not written in TOML: {error}") from error
    lines = _lines(text)
    for section, values in found.items():
        where = _where(path, lines.get(section))
        if section not in SECTIONS:
            raise BadOption(f"{where}: there is no section [{section}]{_hint(section, SECTIONS)}")
        if not isinstance(values, dict):
            raise BadOption(f"{where}: {section} is a section: write [{section}] above its keys")
        for name, value in values.items():
            where = _where(path, lines.get(f"{section}.{name}"))
            yield _key(section, name, where), value, where


def _from_environment(environment: Mapping[str, str]) -> Iterator[tuple[Key, str, str]]:
    for variable in sorted(environment):
        match = _VARIABLE.fullmatch(variable)
        if match is not None:
            where = f"environment {variable}"
            key = _key(match.group(1).lower(), match.group(2).lower(), where)
            text = environment[variable]
            if not _is_utf8(text):
                raise BadOption(f"{where}: {key.path} is {text!a}, and should be UTF-8")
            yield key, text, where


def _is_utf8(text: str) -> bool:
    """Whether a variable had no bytes that stand for no character."""
    return not any("\ud800" <= sign <= "\udfff" for sign in text)


def _key(section: str, name: str, where: str) -> Key:
    path = f"{section}.{name}"
    if path not in KEYS:
        raise BadOption(f"{where}: there is no key {path}{_hint(path, KEYS)}")
    return KEYS[path]


def _hint(name: str, known: Mapping[str, object]) -> str:
    close = get_close_matches(name, list(known), n=1)
    if not close and "." in name:  # The right name in the wrong section.
        close = [path for path in known if path.endswith("." + name.partition(".")[2])][:1]
    return f": is {close[0]} meant?" if close else f"; there are {', '.join(known)}"


def _convert(key: Key, value: Value, where: str) -> Value:
    if key.is_list and isinstance(value, str):
        value = [value]
    try:
        found: Value = msgspec.convert(
            value, type=key.hint, strict=not where.startswith("environment")
        )
    except msgspec.ValidationError:
        shown = written(tuple(value) if isinstance(value, list) else value)
        raise BadOption(f"{where}: {key.path} is {shown}, and should be {key.allowed}") from None
    return found


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(_FILE_BYTES_MAX + 1)
        if len(data) > _FILE_BYTES_MAX:
            raise BadOption(f"{path} has more than {_FILE_BYTES_MAX} bytes: is it the right file?")
        return data.decode()
    except OSError as error:
        raise BadOption(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise BadOption(f"{path} is not a text file") from None


def _lines(text: str) -> dict[str, int]:
    """Where each section and each key is written, as far as that is easily seen."""
    found: dict[str, int] = {}
    section = ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            section = header.group(1)
            found.setdefault(section, number)
        elif assignment := _ASSIGNMENT.match(line):
            name = assignment.group(1)
            found.setdefault(f"{section}.{name}" if section else name, number)
    return found


def _where(path: str | Path, line: int | None) -> str:
    return str(path) if line is None else f"{path}:{line}"
