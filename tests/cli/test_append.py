"""`tidelog append`: lines become records."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Unpack

import pytest

import tidelog
from tests.cli.running import empty_log, run, run_json, values
from tidelog.cli import append_load
from tidelog.cli.append_lines import ValueLines
from tidelog.cli.append_load import BATCH_BYTES, LineTooLong, Load, batches_of, load_lines
from tidelog.cli.failures import Failure
from tidelog.errors import DeadlineExceeded
from tidelog.interface.appends import AppendOptions
from tidelog.interface.handles import TopicHandle
from tidelog.interface.records import Receipt
from tidelog.limits import KEY_BYTES_MAX, VALUE_BYTES_MAX


class Chunks:
    """An input that gives what it holds in the given pieces, and is no file."""

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = list(pieces)

    def read1(self, size: int = -1, /) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""

    def fileno(self) -> int:
        raise OSError("not a file")


class Endless(Chunks):
    """A line that never ends."""

    reads = 0

    def read1(self, size: int = -1, /) -> bytes:
        self.reads += 1
        return b"x" * size


@pytest.fixture
def data(tmp_path: Path) -> Path:
    empty_log(tmp_path / "log")
    return tmp_path / "log"


@pytest.mark.parametrize(
    "text",
    [b"one\ntwo\nthree\n", b"one\n\n\ntwo\n", b"no end", b"\xff\xfe\nb\x00c\n", b" a\r\n\tb \n"],
)
def test_every_line_comes_back_byte_by_byte(data: Path, text: bytes) -> None:
    run("append", "-d", data, stdin=text)

    found = run("tail", "-d", data).stdout_bytes
    assert found == (text if text.endswith(b"\n") else text + b"\n")


def test_the_summary_counts_records_and_names_their_place(data: Path) -> None:
    run("append", "-d", data, stdin=b"a\nb\n")

    found = run_json("append", "-d", data, "--batch", 2, stdin=b"c\nd\ne\n")

    assert found.pop("seconds") >= 0
    assert found == {
        "topic": "default",
        "records": 3,
        "duplicates": 0,
        "appends": 2,
        "first_glsn": 3,
        "last_glsn": 5,
        "next_sequence": None,
    }
    text = run("append", "-d", data, stdin=b"f\n").stdout
    assert text.startswith("appended 1 record to topic default, GLSN 6..6 (")


def test_the_log_and_the_topic_are_made_if_need_be(tmp_path: Path) -> None:
    for topic in ("a", "b"):
        run("append", "-d", tmp_path / "new", "-t", topic, stdin=b"1\n")

    found = run_json("topic", "list", "-d", tmp_path / "new")["topics"]
    assert [(topic["topic"], topic["high_watermark"]) for topic in found] == [("a", 1), ("b", 1)]


def test_no_lines_are_no_error(data: Path) -> None:
    found = run_json("append", "-d", data)

    assert (found["records"], found["first_glsn"], found["last_glsn"]) == (0, None, None)


def test_lines_with_a_separator_become_puts(data: Path) -> None:
    run("append", "-d", data, "-K", "\\t", stdin=b"a\t1\nb\t2\t3\na\t\n")

    assert run("get", "-d", data, "a").stdout_bytes == b"\n"
    assert run("get", "-d", data, "b").stdout_bytes == b"2\t3\n"


def test_lines_become_deletes(data: Path) -> None:
    run("append", "-d", data, "-K", ":", stdin=b"a:1\nb:2\n")
    run("append", "-d", data, "--delete", stdin=b"a\n")

    run("get", "-d", data, "a", code=4)
    assert run("get", "-d", data, "b").stdout == "2\n"


def test_json_lines_make_entries_of_every_kind_in_their_order(data: Path) -> None:
    lines = [
        {"value": "plain"},
        {"key": "k", "value": "keyed"},
        {"key_b64": "/w==", "value_b64": "AAE=", "storage_id": 7},
        {"kind": "delete", "key": "k"},
        {"kind": "append", "key": "route", "value": "kept"},
        {"kind": "delete_storage", "storage_id": 7},
        {"kind": "delete_storage", "storage_id": 8},
        {"kind": "put", "key": "k", "value": "again", "blobs": [5, 6]},
    ]
    text = "\n\n".join(map(json.dumps, lines))

    assert run_json("append", "-d", data, "--jsonl", stdin=text)["records"] == len(lines)

    printed = run("tail", "-d", data, "-o", "jsonl").stdout.splitlines()
    found = [json.loads(line) for line in printed]
    assert [record["glsn"] for record in found] == list(range(1, len(lines) + 1))
    assert [record["kind"] for record in found] == [
        "append", "put", "put", "delete", "append", "delete_storage", "delete_storage", "put"
    ]  # fmt: skip
    assert (found[2]["key_b64"], found[2]["value"], found[2]["storage_id"]) == ("/w==", "\0\1", 7)
    assert (found[5]["storage_id"], found[6]["storage_id"]) == (7, 8)
    assert found[7]["blobs"] == [5, 6]


def test_what_tail_prints_as_json_can_be_appended_to_another_log(
    data: Path, tmp_path: Path
) -> None:
    with tidelog.open(data) as log:
        log.append_batch([b"\xff\0", b"text"])
        log.put(b"\xfek", b"1", storage_id=3)
        log.delete(b"gone")
        log.delete_storage(3)
    printed = run("tail", "-d", data, "-o", "jsonl").stdout_bytes

    run("append", "-d", tmp_path / "copy", "--jsonl", stdin=printed)

    form = "%o %i [%k] [%v]"
    copied = run("tail", "-d", tmp_path / "copy", "--format", form).stdout_bytes
    assert copied == run("tail", "-d", data, "--format", form).stdout_bytes
    assert copied.count(b"\n") == 5


def test_it_can_be_in_a_topic_with_explicit_versions_too(tmp_path: Path) -> None:
    for name in ("log", "copy"):
        run("topic", "create", "t", "-d", tmp_path / name, "--versions", "explicit")
    with tidelog.open(tmp_path / "log", topic="t") as log:
        log.append_batch([b"text", b""])
        log.put(b"k", b"1", write_version=70)
        log.delete_storage(3, write_version=71)
        log.append(b"last")

    printed = run("tail", "-d", tmp_path / "log", "-t", "t", "-o", "jsonl").stdout_bytes
    run("append", "-d", tmp_path / "copy", "-t", "t", "--jsonl", stdin=printed)

    form = "%o %i %w [%k] [%v]"
    copied, original = (
        run("tail", "-d", tmp_path / name, "-t", "t", "--format", form).stdout_bytes
        for name in ("copy", "log")
    )
    assert copied == original


def test_a_topic_with_explicit_versions_takes_them_from_json(data: Path) -> None:
    run("topic", "create", "t", "-d", data, "--versions", "explicit")
    high = (1 << 128) - 1
    line = json.dumps({"key": "k", "value": "v", "write_version": high})

    run("append", "-d", data, "-t", "t", "--jsonl", stdin=line)

    assert run_json("get", "k", "-d", data, "-t", "t")["write_version"] == high
    text = run("append", "-d", data, "-t", "t", "-K", ":", stdin=b"k:v\n", code=1).stderr
    assert "explicit versions" in text


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "not JSON"),
        ("[1]", "not a JSON object"),
        ('{"vaule": "x"}', "no field 'vaule'"),
        ('{"kind": "control"}', "kind 'control' does not exist"),
        ('{"kind": 2}', "kind 2 does not exist"),
        ('{"kind": "delete"}', "needs a key"),
        ('{"value": 5}', "value is not a text"),
        ('{"value": "\\ud800"}', "value is not UTF-8"),
        ('{"value_b64": "!"}', "value is not base64"),
        ('{"key": "a", "key_b64": "YQ=="}', "both key and key_b64"),
        ('{"key": "a", "storage_id": true}', "storage_id is not a whole number"),
        ('{"key": "a", "storage_id": -1}', "out of range"),
        ('{"key": "a", "write_version": 1.5}', "write_version is not a whole number"),
        ('{"key": "a", "blobs": [true]}', "blobs is not a list"),
        ('{"value": "a", "storage_id": 1}', "without a key"),
    ],
)
def test_a_bad_json_line_is_named_and_all_before_it_is_appended(
    data: Path, line: str, reason: str
) -> None:
    text = '{"value": "one"}\n{"key": "two"}\n' + line + '\n{"value": "four"}\n'

    error = run("append", "-d", data, "--jsonl", stdin=text, code=1).stderr

    assert error.startswith("tidelog: line 3: ")
    assert reason in error
    assert "2 records appended, GLSN 1..2" in error
    assert values(data) == [b"one", b"two\t"]


@pytest.mark.parametrize(
    ("option", "line", "reason"),
    [
        ("-K:", b"no separator", "no b':' between"),
        ("-K:", b":v", "key is empty"),
        ("-K:", b"k" * (KEY_BYTES_MAX + 1) + b":v", "limit is 65535"),
        ("--delete", b"", "key is empty"),
    ],
)
def test_a_bad_line_is_named(data: Path, option: str, line: bytes, reason: str) -> None:
    error = run("append", "-d", data, option, stdin=b"a:1\n" + line + b"\nc:3\n", code=1).stderr

    assert "tidelog: line 2: " in error
    assert reason in error


def test_a_value_that_is_too_large_is_named_and_the_rest_before_it_is_there(data: Path) -> None:
    text = b"one\n" + b"x" * (VALUE_BYTES_MAX + 1) + b"\nthree\n"

    error = run("append", "-d", data, stdin=text, code=1).stderr

    assert "tidelog: line 2: " in error
    assert "all before line 2 is in the log" in error
    assert values(data) == [b"one"]


def test_a_write_version_where_glsns_are_the_versions_is_refused_with_its_lines(
    data: Path,
) -> None:
    text = '{"value": "one"}\n{"key": "a", "write_version": 9}\n'

    error = run("append", "-d", data, "--jsonl", stdin=text, code=1).stderr

    assert "lines 2 to 2: topic 'default' takes GLSNs as write versions" in error
    assert values(data) == [b"one"]


@pytest.mark.parametrize("what", [(), ("-t", "other")])
def test_nothing_is_created_where_that_is_forbidden(
    data: Path, tmp_path: Path, what: tuple[str, ...]
) -> None:
    path = data if what else tmp_path / "missing"

    run("append", "-d", path, "--no-create", *what, stdin=b"a\n", code=4)

    assert path.exists() == bool(what)
    assert len(run_json("topic", "list", "-d", data)["topics"]) == 1


@pytest.mark.parametrize(
    "args",
    [
        ("--jsonl", "--delete"),
        ("--jsonl", "-K:"),
        ("-K", ""),
        ("--sequence-start", "3"),
        ("--resume",),
        ("--producer", ""),
        ("--batch", "0"),
        ("--batch", str((1 << 20) + 1)),
    ],
)
def test_options_that_make_no_sense_are_wrong_usage(data: Path, args: tuple[str, ...]) -> None:
    run("append", "-d", data / "missing", *args, code=2)

    assert not (data / "missing").exists()


# -- producers ----------------------------------------------------------------------------------


def lines(count: int) -> bytes:
    return b"".join(b"%d\n" % number for number in range(count))


def test_repeating_the_load_of_a_producer_appends_nothing_twice(data: Path) -> None:
    load = ("append", "-d", data, "--producer", "p", "--batch", "10")

    first = run_json(*load, stdin=lines(35))
    again = run_json(*load, stdin=lines(35))

    assert (first["records"], first["appends"], first["next_sequence"]) == (35, 4, 5)
    assert (again["records"], again["duplicates"]) == (0, 35)
    assert values(data) == lines(35).splitlines()


def test_a_load_that_broke_off_is_completed_by_repeating_it(data: Path) -> None:
    load = ("append", "-d", data, "--producer", "p", "--batch", "10", "-K:")
    whole = b"".join(b"k%d:%d\n" % (number, number) for number in range(35))
    broken = whole.replace(b"k27:", b"k27")

    error = run(*load, stdin=broken, code=1).stderr
    assert "line 28: " in error
    assert "all before line 21 is in the log: 20 records" in error
    assert "the next sequence is 3" in error

    found = run_json(*load, stdin=whole)
    assert (found["records"], found["duplicates"]) == (15, 20)
    assert len(values(data)) == 35


def test_a_load_with_other_batches_is_refused(data: Path) -> None:
    run("append", "-d", data, "--producer", "p", "--batch", 5, stdin=lines(10))

    error = run("append", "-d", data, "--producer", "p", "--batch", 8, stdin=lines(10), code=1)

    assert "sequence 1 for another append" in error.stderr
    assert values(data) == lines(10).splitlines()


def test_a_long_load_is_resumed_only_when_that_is_asked_for(data: Path) -> None:
    load = ("append", "-d", data, "--producer", "p", "--batch", "1")
    run(*load, stdin=lines(20))

    error = run(*load, stdin=lines(25), code=1).stderr
    assert "lines 1 to 1: " in error

    found = run_json(*load, "--resume", stdin=lines(25))
    assert (found["records"], found["duplicates"]) == (5, 20)
    assert values(data) == lines(25).splitlines()


def test_a_producer_can_go_on_from_a_number(data: Path) -> None:
    run("append", "-d", data, "--producer", "p", stdin=b"a\n")

    found = run_json("append", "-d", data, "--producer", "p", "--sequence-start", 2, stdin=b"b\n")

    assert (found["records"], found["next_sequence"]) == (1, 3)


# -- reading lines ------------------------------------------------------------------------------


def batches(*pieces: bytes, lines_max: int = 100, exact: bool = False) -> list[list[bytes]]:
    found = list(batches_of(Chunks(*pieces), lines_max, 1000, exact=exact))
    firsts = [first for first, _ in found]
    assert firsts == [1 + sum(len(b) for _, b in found[:i]) for i in range(len(found))]
    return [batch for _, batch in found]


def test_lines_may_come_in_any_pieces() -> None:
    text = b"one\n\ntwo three\nfour"
    expected = text.split(b"\n")

    for at in range(len(text) + 1):
        pieces = [piece for piece in (text[:at], text[at:]) if piece]
        assert [line for batch in batches(*pieces) for line in batch] == expected
    single = [text[i : i + 1] for i in range(len(text))]
    assert [line for batch in batches(*single) for line in batch] == expected


def test_batches_are_full_whatever_the_pieces() -> None:
    assert batches(b"a\nb\n", b"c\n", b"d\ne", lines_max=2, exact=True) == [
        [b"a", b"b"],
        [b"c", b"d"],
        [b"e"],
    ]


def test_a_batch_is_bounded_by_its_bytes_too() -> None:
    half = b"x" * (BATCH_BYTES // 2)
    found = list(batches_of(Chunks(b"\n".join([half] * 5)), 100, BATCH_BYTES, exact=True))

    assert [len(batch) for _, batch in found] == [2, 2, 1]


def test_a_line_without_end_is_given_up_before_it_fills_the_memory() -> None:
    stream = Endless()

    with pytest.raises(LineTooLong, match="line 1: it is longer than 1000000 bytes"):
        list(batches_of(stream, 10, 1_000_000, exact=False))

    assert stream.reads < 10


def test_the_lines_before_one_without_end_are_handed_out() -> None:
    found = batches_of(Chunks(b"a\nb\n", b"y" * 99), 10, 50, exact=False)

    assert next(found) == (1, [b"a", b"b"])
    with pytest.raises(LineTooLong, match="line 3: "):
        next(found)


def test_json_that_is_nested_too_deeply_is_a_bad_line(data: Path) -> None:
    lines = b'{"value": "a"}\n' + b"[" * 200_000 + b"\n"
    assert (
        "line 2: it is not JSON" in run("append", "-d", data, "--jsonl", stdin=lines, code=1).stderr
    )
    assert values(data) == [b"a"]


@pytest.mark.parametrize("more", ['"value": "x"', '"blobs": [1]'])
def test_nothing_of_a_line_is_left_out(data: Path, more: str) -> None:
    line = f'{{"kind": "delete_storage", {more}}}'
    shown = run("append", "-d", data, "--jsonl", stdin=line, code=1).stderr
    assert "neither a value nor BLOBs" in shown
    assert values(data) == []


def test_an_input_that_breaks_off_says_what_was_appended(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lines(*args: object, **options: object) -> Iterator[tuple[int, list[bytes]]]:
        yield 1, [b"a", b"b"]
        raise OSError(errno.EIO, "the input is broken")

    monkeypatch.setattr(append_load, "batches_of", lines)
    shown = run("append", "-d", data, code=1).stderr
    assert "the input is broken; all before line 3 is in the log: 2 records appended" in shown


class Unanswered(ValueLines):
    """Nobody tells what became of the second append."""

    def __init__(self, answered: int) -> None:
        self._answered = answered

    def send(
        self, topic: TopicHandle, items: Sequence[bytes], **options: Unpack[AppendOptions]
    ) -> Sequence[Receipt]:
        if not self._answered:
            raise DeadlineExceeded("no answer")
        self._answered -= 1
        return super().send(topic, items, **options)


@pytest.mark.parametrize(
    ("answered", "told"), [(0, "nothing else was appended"), (1, "all before line 2 is in the log")]
)
def test_what_is_in_doubt_is_not_said_to_be_missing(data: Path, answered: int, told: str) -> None:
    with tidelog.open(data) as log, pytest.raises(Failure) as caught:
        load_lines(Load(log, "", 1, False), Unanswered(answered), Chunks(b"a\nb\n"), 1)

    line = answered + 1
    assert f"lines {line} to {line} (these may be in the log or not): no answer" in str(
        caught.value
    )
    assert f"no answer; {told}" in str(caught.value)
