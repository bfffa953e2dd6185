"""The examples of the client guide do what they say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import pytest

from tests.client.served import Node

GUIDE: Final = Path(__file__).parents[2] / "docs" / "client.md"
ADDRESS: Final = "tidelog://127.0.0.1:7447/default"
BLOCK: Final = re.compile(r"(<!-- cluster -->\n)?```python\n(.*?)```", re.DOTALL)


def blocks(*, of_cluster: bool) -> list[str]:
    found = BLOCK.findall(GUIDE.read_text())
    return [code for mark, code in found if bool(mark) == of_cluster]


def test_the_examples_of_the_guide_run(served: Node) -> None:
    """One after the other, as a reader would try them; what one defines the next may use."""
    names: dict[str, Any] = {"__name__": "guide"}
    examples = blocks(of_cluster=False)
    assert len(examples) > 10
    for code in examples:
        exec(compile(code.replace(ADDRESS, f"{served.url}default"), str(GUIDE), "exec"), names)


@pytest.mark.timeout(180)
def test_the_examples_of_the_guide_run_on_a_cluster() -> None:
    [example] = blocks(of_cluster=True)
    exec(compile(example, str(GUIDE), "exec"), {"__name__": "guide"})
