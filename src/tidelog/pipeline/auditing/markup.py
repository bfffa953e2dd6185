"""Elements of an HTML page in which all text is escaped.  No state."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final, NewType

Markup = NewType("Markup", str)
"""Text that is HTML already; only this module makes it."""

_WITHOUT_END: Final = ("br", "meta")


def words(text: object) -> Markup:
    """Plain text."""
    return Markup(escape(str(text), quote=False))


def joined(parts: Iterable[Markup]) -> Markup:
    """Elements one behind the other."""
    return Markup("".join(parts))


def element(name: str, /, *content: Markup, **attributes: object) -> Markup:
    """An element.  An underscore in the name of an attribute is a hyphen, the last one nothing."""
    told = "".join(
        f' {key.removesuffix("_").replace("_", "-")}="{escape(str(value))}"'
        for key, value in attributes.items()
    )
    if name in _WITHOUT_END:
        return Markup(f"<{name}{told}>")
    return Markup(f"<{name}{told}>{''.join(content)}</{name}>")


def text(name: str, content: object, /, **attributes: object) -> Markup:
    """An element with plain text in it."""
    return element(name, words(content), **attributes)


def table(headers: Sequence[str], rows: Iterable[Sequence[Markup]], numbers: int = 0) -> Markup:
    """A table that scrolls by itself where it is wider than the page.

    The last ``numbers`` columns stand to the right.
    """

    def line(kind: str, cells: Sequence[Markup]) -> Markup:
        left = len(cells) - numbers
        return element(
            "tr",
            *(element(kind, cell) for cell in cells[:left]),
            *(element(kind, cell, class_="number") for cell in cells[left:]),
        )

    top = element("thead", line("th", [words(header) for header in headers]))
    body = element("tbody", *(line("td", row) for row in rows))
    return element("div", element("table", top, body), class_="wide", tabindex="0")


def document(title: str, style: str, body: Iterable[Markup]) -> str:
    """A whole page, which may load nothing from anywhere."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element(
            "meta",
            http_equiv="Content-Security-Policy",
            content="default-src 'none'; style-src 'unsafe-inline'",
        ),
        text("title", title),
        element("style", Markup(style)),
    )
    page = element("html", head, element("body", *body), lang="en")
    return f"<!DOCTYPE html>\n{page}\n"
