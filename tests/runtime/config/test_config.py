"""Where values come from, which win, and what is refused with which words."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tidelog.errors import BadAddress, BadOption
from tidelog.net.endpoint import parse_endpoint
from tidelog.runtime.config import Config, Role, advertised, check_config, members_of
from tidelog.runtime.config_sources import KEYS, Loaded, load_config, read_config, value_of, written
from tidelog.runtime.gateway import GatewayOptions
from tidelog.runtime.process_options import gateway_options

PAGE = Path(__file__).parents[3] / "docs" / "configuration.md"
MINIMAL = {"TIDELOG_NODE__DATA": "somewhere"}


def from_text(path: Path, text: str, environment: dict[str, str] | None = None) -> Loaded:
    file = path / "node.toml"
    file.write_text(text)
    return read_config(file, environment or {})


def test_without_a_file_all_values_are_defaults() -> None:
    loaded = read_config(None, {})

    assert loaded.config == Config()
    assert set(loaded.origins.values()) == {"default"}


def test_the_environment_wins_over_the_file_and_the_file_over_defaults(tmp_path: Path) -> None:
    text = '[node]\ndata = "d"\nlisten = ["tcp://a:1"]\n\n[timing]\nping = 1\n'
    loaded = from_text(
        tmp_path, text, {"TIDELOG_NODE__LISTEN": "tcp://b:2, tcp://c:3", "TIDELOG_TOKEN": "x"}
    )

    assert loaded.config.node.listen == ("tcp://b:2", "tcp://c:3")
    assert loaded.config.timing.ping == 1.0
    assert loaded.config.log.level == "info"
    file = tmp_path / "node.toml"
    assert loaded.origins["node.listen"] == "environment TIDELOG_NODE__LISTEN"
    assert loaded.origins["node.data"] == f"{file}:2"
    assert loaded.origins["timing.ping"] == f"{file}:6"
    assert loaded.origins["log.level"] == "default"


def test_how_long_stages_are_kept_is_told_to_gateways(tmp_path: Path) -> None:
    config = from_text(tmp_path, "[timing]\nstages = 86400\n").config
    assert gateway_options(config).stage_seconds == 86400.0
    assert gateway_options(Config()) == GatewayOptions(replicas=Config().cluster.replicas)


def test_one_address_needs_no_brackets(tmp_path: Path) -> None:
    assert from_text(tmp_path, '[node]\npeers = "tcp://a:1"').config.node.peers == ("tcp://a:1",)


def test_every_key_can_be_set_in_the_environment() -> None:
    environment = {key.variable: _in_environment(key.default) for key in KEYS.values()}
    loaded = read_config(None, environment)

    assert loaded.config == Config()
    assert all(origin.startswith("environment ") for origin in loaded.origins.values())


def _in_environment(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(each.value if isinstance(each, Role) else str(each) for each in value)
    return str(value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[node]\nlistn = "x"', r"node.toml:2: there is no key node.listn: is node.listen meant\?"),
        ("[nodes]\nx = 1", r"node.toml:1: there is no section \[nodes\]: is node meant\?"),
        ('[node]\nlevel = "x"', r"there is no key node.level: is log.level meant\?"),
        ("node = 1", r"node is a section"),
        ("[timing]\nping = 'often'", r"timing.ping is \"often\", and should be a number from 0.02"),
        ("[timing]\n\nping = 0.001", r"node.toml:3: timing.ping is 0.001"),
        ("[log]\nformat = 'xml'", r"should be one of text, json"),
        ("[node]\nroles = ['king']", r"should be a list of any of storage, metadata, operator"),
        ("[storage]\nwal_file_bytes = 1.5", r"should be a whole number from 65536 to"),
        ("[storage]\nwal_file_bytes = '1'", r"should be a whole number"),
        ("[node]\ndata = 1", r"node.data is 1, and should be text"),
        ("[node\n", r"is not written in TOML"),
        ("[cluster]\nreplicas = " + "9" * 5_000, r"is not written in TOML"),
        ("[cluster]\nreplicas = 0x" + "f" * 5_000, r"cluster.replicas is 0xf+, and should be"),
        ("a = " + "[" * 5_000, r"is not written in TOML"),
    ],
)
def test_what_is_wrong_in_a_file_is_told_with_its_place(
    tmp_path: Path, text: str, words: str
) -> None:
    with pytest.raises(BadOption, match=words):
        from_text(tmp_path, text)


def test_what_is_wrong_in_the_environment_is_told_with_the_variable() -> None:
    with pytest.raises(BadOption, match=r"environment TIDELOG_TIMING__PING: timing.ping is"):
        read_config(None, {"TIDELOG_TIMING__PING": "0"})
    with pytest.raises(BadOption, match=r"TIDELOG_NODE__DATE: .* is node.data meant\?"):
        read_config(None, {"TIDELOG_NODE__DATE": "x"})


def test_a_variable_that_is_not_utf8_is_named() -> None:
    for name, value in (("LOG__FORMAT", b"\xff"), ("NODE__DATA", b"/srv/\xe4")):
        with pytest.raises(BadOption, match=rf"environment TIDELOG_{name}: .* should be UTF-8"):
            read_config(None, {f"TIDELOG_{name}": os.fsdecode(value)})


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadOption, match="cannot read"):
        read_config(tmp_path / "none.toml", {})


def test_a_node_needs_a_directory() -> None:
    with pytest.raises(BadOption, match=r"node.data is missing"):
        load_config(None, {})
    assert load_config(None, MINIMAL).config.node.data == "somewhere"


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("NODE__ROLES", "", "node.roles names"),
        ("NODE__ROLES", "storage,storage", "each at most once"),
        ("NODE__LISTEN", "", "node.listen is missing"),
        ("NODE__LISTEN", "http://x", "node.listen: .* no address to listen at"),
        ("NODE__PEERS", "tcp://127.0.0.1:0", "a port that stays the same"),
        ("NODE__PEERS", "tcp://a:b", "node.peers: .* is no port"),
        ("NODE__PEERS", "tcp://0.0.0.0:7449", "node.advertise_peers is missing"),
        ("NODE__HTTP", "127.0.0.1:none", "node.http: .* is no port"),
        ("CLUSTER__METADATA", "tcp://a:1", "1@tcp://host:port"),
        ("CLUSTER__METADATA", "0@tcp://a:1", "1@tcp://host:port"),
        ("CLUSTER__METADATA", "1@a:1", "no address to listen at"),
        ("CLUSTER__METADATA", "1@tcp://a:1,1@tcp://b:1", "node 1 is named 2 times"),
        ("CLUSTER__METADATA", "1@tcp://a:0", "name the port"),
        ("CLUSTER__METADATA", "1@tcp://[0::0]:1", "name the host"),
        ("CLUSTER__METADATA", "9" * 5_000 + "@tcp://a:1", "1@tcp://host:port"),
        ("CLUSTER__METADATA", f"{1 << 63}@tcp://a:1", "1@tcp://host:port"),
        ("NODE__LISTEN", "tcp://0.0.0.0:7447", "node.advertise is missing"),
        ("NODE__PEERS", "tcp://[0::0]:7449", "node.advertise_peers is missing"),
        ("NODE__PEERS", "tcp://0:7449", "node.advertise_peers is missing"),
        ("NODE__ADVERTISE", "nowhere", "node.advertise: .* is no address"),
        ("NODE__ADVERTISE", "tcp://0.0.0.0:7447", "node.advertise: .* name the host"),
        ("NODE__ADVERTISE", "unix:///a b", "node.advertise: .* spaces"),
        ("NODE__ADVERTISE_PEERS", "tcp://a:0", "node.advertise_peers: .* name the port"),
        ("NODE__DATA", "a\0b", "zero byte"),
        ("CLUSTER__ID", "12", "cluster.id: .* no cluster id"),
        ("TIMING__SUSPECT", "0.2", "at least twice timing.ping"),
        ("TIMING__OPERATOR_TICK", "0.3", "at most timing.ping"),
    ],
)
def test_values_that_do_not_fit_together_are_refused(key: str, value: str, words: str) -> None:
    loaded = read_config(None, MINIMAL | {f"TIDELOG_{key}": value})
    with pytest.raises((BadOption, BadAddress), match=words):
        check_config(loaded.config)


def test_metadata_nodes_are_named_with_their_numbers() -> None:
    loaded = load_config(None, MINIMAL | {"TIDELOG_CLUSTER__METADATA": "1@tcp://a:1,7@tls://b:2"})

    assert [(m.node, m.address) for m in members_of(loaded.config)] == [
        (1, "tcp://a:1"),
        (7, "tls://b:2"),
    ]


def test_a_wildcard_is_not_told_to_others() -> None:
    bound = [parse_endpoint("tcp://0.0.0.0:7447")]
    with pytest.raises(BadOption, match=r"node.advertise is missing"):
        advertised("", bound, "node.advertise")
    assert advertised("tcp://log.example:7447", bound, "x") == "tcp://log.example:7447"


def test_the_page_lists_every_key_with_its_default() -> None:
    sections = re.split(r"^## \[(\w+)\]$", PAGE.read_text(), flags=re.MULTILINE)
    listed: dict[str, str] = {}
    for name, text in zip(sections[1::2], sections[2::2], strict=True):
        for key, default in re.findall(r"^\| `(\w+)` \| `(.*?)` \|", text, flags=re.MULTILINE):
            listed[f"{name}.{key}"] = default

    assert listed == {path: written(key.default) for path, key in KEYS.items()}


def test_the_page_says_of_each_key_what_the_code_says() -> None:
    page = PAGE.read_text()
    assert [key.path for key in KEYS.values() if key.text not in page] == []


def test_what_is_written_can_be_read(tmp_path: Path) -> None:
    lines: list[str] = []
    section = ""
    for key in KEYS.values():
        if key.section != section:
            section = key.section
            lines.append(f"[{section}]")
        lines.append(f"{key.name} = {written(value_of(Config(), key))}")
    assert from_text(tmp_path, "\n".join(lines)).config == Config()
