"""The report is one page that needs nothing else, and shows what is in the summary."""

from __future__ import annotations

from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

from msgspec.structs import replace

from tidelog.pipeline.auditing.findings import (
    AuditSummary,
    Cell,
    Finding,
    FindingKind,
    LeftOut,
    ReplicaAudit,
    TopicAudit,
)
from tidelog.pipeline.auditing.report import report_page, size_text, write_report

EVIL = "<script>alert('&amp;')</script>\"'"
LOADING = ("src", "href", "srcset", "data", "action", "background", "poster", "xlink:href")
WITHOUT_END = ("meta", "br")


def replica(node: int, **more: int) -> ReplicaAudit:
    made = ReplicaAudit(
        topic="orders", stream=1, node=node, role="follower", llsn_end=101, entries=100
    )
    return replace(made, **more)


SOUND = AuditSummary(
    log_id="ab" * 16,
    began_us=1_790_000_000_000_000,
    seconds=12.5,
    nodes=(1, 2, 3),
    topics=(
        TopicAudit(
            topic="orders",
            streams=(1,),
            high_watermark=100,
            dense_from=41,
            present=90,
            cells=(Cell(1, 41, 30), Cell(41, 101, 60)),
        ),
    ),
    replicas=(replica(1), replica(2, compacted=10, entries=90), replica(3, lag=7)),
    findings=(),
)
DAMAGED = replace(
    SOUND,
    findings=(
        Finding(
            kind=FindingKind.DIVERGED,
            topic=EVIL,
            stream=1,
            nodes=(1, 3),
            llsn_begin=41,
            llsn_end=43,
            file=EVIL,
            what=EVIL,
        ),
        Finding(kind=FindingKind.MISSING_GLSNS, topic="orders", glsn_begin=7, glsn_end=8),
    ),
    findings_more=5,
    left_out=(LeftOut(EVIL, 1, 2, EVIL),),
    topics=(
        TopicAudit(
            topic=EVIL,
            streams=(1,),
            high_watermark=100,
            dense_from=1,
            present=99,
            cells=(Cell(1, 51, 49), Cell(51, 101, 50, 2)),
        ),
    ),
    replicas=(replace(replica(1, findings=1), topic=EVIL, role=EVIL),),
)


class Page(HTMLParser):
    """Elements, texts and attributes of a page; fails where elements are not closed in order."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: Counter[str] = Counter()
        self.classes: Counter[str] = Counter()
        self.texts: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert not self._open, f"never closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements[tag] += 1
        for name, value in attrs:
            self.attributes.append((name, value or ""))
            if name == "class":
                self.classes.update((value or "").split())
        if tag not in WITHOUT_END:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] != "style":
            self.texts.append(data)

    @property
    def text(self) -> str:
        return "\n".join(self.texts)


def test_a_page_is_well_formed_and_loads_nothing() -> None:
    for summary in (SOUND, DAMAGED):
        text = report_page(summary)
        page = Page(text)
        assert page.elements["html"] == page.elements["h1"] == 1
        assert not page.elements["script"]
        assert not page.elements["link"]
        assert [name for name, _ in page.attributes if name in LOADING] == []
        assert "url(" not in text
        assert "@import" not in text


def test_all_that_others_wrote_is_escaped() -> None:
    text = report_page(DAMAGED)
    assert "<script" not in text
    page = Page(text)
    assert page.text.count(EVIL) >= 6


def test_a_sound_log_says_so() -> None:
    page = Page(report_page(SOUND))
    assert "sound" in page.texts
    assert page.classes["good"] == 1
    assert "Not looked at" not in page.text


def test_findings_are_listed_with_their_places() -> None:
    page = Page(report_page(DAMAGED))
    assert "7 findings" in page.text
    for told in ("diverged replicas", "1, 3", "41 to 42", "missing GLSNs", "7", "5 more"):
        assert told in page.text


def test_a_log_that_could_not_all_be_looked_at_says_so() -> None:
    left_out = (LeftOut("orders", 1, 2, "its node does not answer"),)
    page = Page(report_page(replace(SOUND, left_out=left_out)))
    assert page.classes["partly"] == 1
    assert "its node does not answer" in page.text


def test_plots_show_gaps_and_doubles_where_they_are_damage() -> None:
    """The legend has one of each kind itself."""
    sound, damaged = Page(report_page(SOUND)), Page(report_page(DAMAGED))
    assert sound.classes["lost"] == 1, "what was compacted is not lost"
    assert sound.classes["doubled"] == 1
    assert damaged.classes["lost"] == 2
    assert damaged.classes["doubled"] == 2
    assert "GLSN 1 to 50: 49 there, 1 missing" in damaged.text
    assert "GLSN 1 to 40: 30 there, 10 compacted or trimmed" in sound.text


def test_an_empty_log_has_a_page_too() -> None:
    empty = TopicAudit(topic="t", streams=(1,), high_watermark=0, dense_from=1, present=0)
    Page(report_page(replace(SOUND, topics=(empty,), replicas=())))


def test_a_page_with_thousands_of_replicas_stays_small() -> None:
    many = tuple([replica(node) for node in range(5_000)])
    text = report_page(replace(SOUND, replicas=many))
    assert "3,000 more" in Page(text).text
    assert len(text) < 2_000_000


def test_a_page_follows_the_wish_for_a_dark_one_and_the_width_of_a_phone() -> None:
    text = report_page(SOUND)
    assert "prefers-color-scheme: dark" in text
    assert ("content", "width=device-width, initial-scale=1") in Page(text).attributes


def test_a_report_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")
    write_report(path, SOUND)
    assert path.read_text() == report_page(SOUND)
    assert [one.name for one in tmp_path.iterdir()] == ["report.html"]


def test_sizes_are_told_with_units() -> None:
    assert [size_text(size) for size in (0, 1023, 1536, 5 << 30)] == [
        "0 B",
        "1,023 B",
        "1.5 KiB",
        "5.0 GiB",
    ]
