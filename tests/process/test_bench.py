"""The benchmarks run, on a small scale: what they print is about what they did."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import appends, client, large, pair
from bench.machine import facts
from bench.report import Results, merged, page
from tidelog.cli import bench_embedded, bench_pair
from tidelog.cli.bench_disk import DiskTwice
from tidelog.cli.bench_engines import ENGINES, Tidelog, TidelogAppender
from tidelog.cli.bench_measure import Payload, Work, measure
from tidelog.errors import LogClosed
from tidelog.limits import MIB, WAL_FILE_BYTES_DEFAULT

TINY = appends.Scale(
    repeats=1, batched_bytes=60_000, single_calls=8, seconds_max=10, warm_bytes=1 << 20
)

TRIGGERS = {"tidelog_ms": 50.0, "rate_ms": 40.0, "times": 1.25}


@pytest.mark.parametrize("keyed", [False, True])
def test_every_engine_does_the_same_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keyed: bool
) -> None:
    works = [Work(100, 1, keyed), Work(100, 100, keyed), Work(100, 100, keyed, threads=2)]
    monkeypatch.setattr(appends, "works", lambda: works)
    measured = list(appends.measure_appends(tmp_path, TINY))
    names = [[figure.engine for figure in figures] for figures in measured]
    assert names == [appends.engines_for(work) for work in works]
    assert names[1] == [*ENGINES]
    for figures in measured:
        assert len({figure.calls for figure in figures}) == 1
    text = page(Results(facts(tmp_path), "command", appends=measured))
    assert text.count("| rocksdb |") == text.count("| tidelog |") == len(works)
    assert text.count(", appender |") == 1


def test_what_was_measured_is_in_the_log(tmp_path: Path) -> None:
    engine = Tidelog(tmp_path)
    work = Work(100, 10, keyed=True, threads=3)
    measured = measure(engine, work, Payload(work), seconds=60, calls=30)
    assert measured.calls == 30
    assert engine.log.high_watermark == 30 * 10
    engine.close()


@pytest.mark.parametrize("batch", [1, 10])
def test_an_appender_is_measured_until_all_is_durable(tmp_path: Path, batch: int) -> None:
    engine = TidelogAppender(tmp_path)
    work = Work(100, batch, keyed=True)
    measured = measure(engine, work, Payload(work), seconds=60, calls=30)
    assert measured.calls == 30
    assert engine.log.high_watermark == 30 * batch
    engine.close()


def test_the_disk_writes_full_files_once_more(tmp_path: Path) -> None:
    disk = DiskTwice(tmp_path)
    writer = disk.writer()
    try:
        for _ in range(2 * WAL_FILE_BYTES_DEFAULT // MIB + 1):
            writer.append([bytes(MIB)])
        disk.settle()
    finally:
        disk.close()
    sizes = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    names = ["disk-twice", "disk-twice-1", "disk-twice-2"]
    assert sizes == dict.fromkeys(names, WAL_FILE_BYTES_DEFAULT)


@pytest.mark.parametrize("kind", [Tidelog, TidelogAppender])
def test_a_failing_writer_ends_the_measurement(tmp_path: Path, kind: type[Tidelog]) -> None:
    engine = kind(tmp_path)
    engine.close()
    work = Work(100, 1, keyed=False, threads=2)
    with pytest.raises(LogClosed):
        measure(engine, work, Payload(work), seconds=60, calls=30)


def test_a_large_log_is_started_read_and_compacted(tmp_path: Path) -> None:
    plain, keyed = str(tmp_path / "plain"), str(tmp_path / "keyed")
    large.build_plain(plain, 5_000)
    started = large.start_plain(plain, 5_000)
    assert started["first_read_glsn"] == 2_500
    assert started["records_per_second"] > 0
    built = large.build_keyed(keyed, 100, 600_000)
    assert large.look_up(keyed, int(built["entries"]) // 2)["p99_us"] > 0
    compacted = large.compact(keyed)
    assert compacted["live_entries"] == built["entries"] / 2
    assert compacted["failures"] == 0


def test_the_command_prints_json_with_the_ratio_to_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench_embedded, "warm_up", lambda engine: None)
    code = bench_embedded.run(
        data=str(tmp_path), sizes=[100], seconds=0.02, peers=False, output="json"
    )
    assert code == 0
    results = json.loads(capsys.readouterr().out)["results"]
    assert [row["engine"] for row in results] == ["disk", "tidelog"] * 4
    assert {row["batch_records"] for row in results} == {1, 1000}
    assert all(row["ratio_to_disk"] == 1 for row in results if row["engine"] == "disk")
    assert all(row["records_per_second"] > 0 for row in results)
    assert list(tmp_path.iterdir()) == []


def test_a_client_is_measured_and_its_part_of_the_page_replaced(tmp_path: Path) -> None:
    measured = dict(client.measure_client(tmp_path, client.QUICK))
    known = page(Results({"load": "9"}, "old", client={"gone": {"records_per_second": 1.0}}))
    known = merged(known, Results({}, "other", spark={"triggers": TRIGGERS}))

    text = merged(known, Results({"load": "1"}, "new", client=measured))

    assert text.count("## Client and node") == 1
    assert "| subscribe | " in text
    assert "gone" not in text
    assert "| trigger | 50 ms | 40 ms | 1.25 × (goal ≤ 1.5) | yes |" in text


def test_a_pair_is_measured_beside_plain_bytes_with_its_spans(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    works = [bench_pair.Work(100, 3, 2)]
    assert (
        bench_pair.run(data=str(tmp_path), works=works, seconds=0.02, spans=True, output="json")
        == 0
    )
    told = json.loads(capsys.readouterr().out)
    assert [row["mode"] for row in told["results"]] == ["plain", *bench_pair.MODES]
    assert all(row["sessions_per_second"] > 0 for row in told["results"])
    spans = {row["span"]: row["count"] for row in told["spans"]["parallel, 3 × 100 B, 2 channels"]}
    assert spans["session end"] >= 200
    assert spans["remote fsync"] >= spans["session end"]
    assert spans["group commit"] > 0
    assert list(tmp_path.iterdir()) == []


def test_the_page_shows_a_pair_and_what_its_time_goes_to() -> None:
    row = dict.fromkeys(pair.FIGURES, 1.0)
    span = {"count": 5.0, "p50_us": 7.0, "p99_us": 9.0}
    figures = {"serial, 1 × 100 B": row, "span, serial, 1 × 100 B, send": span}
    text = page(Results({}, "command", pair=figures))
    assert "| serial | 1 × 100 B | 1 | 1.0 | 1 | 1 | 100% |" in text
    assert "| send | 5 | 7 | 9 |" in text
