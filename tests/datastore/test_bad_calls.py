"""What a caller gets wrong is refused, and the datastore goes on as if nothing had been asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.datastore.stores import commit, contents, open_store, put
from tidelog.core.session.epochs import BOUNDARY_END
from tidelog.datastore.lanes import Lanes
from tidelog.errors import BadOption
from tidelog.limits import WRITE_VERSION_END


@pytest.mark.parametrize("epoch", ["5", None, 1.5, np.int64(5)])
def test_an_epoch_that_is_no_int_is_refused_and_epochs_go_on(tmp_path: Path, epoch: Any) -> None:
    store, [channel] = open_store(tmp_path)
    with store:
        with pytest.raises(BadOption, match=type(epoch).__name__):
            store.switch_epoch(epoch)
        store.switch_epoch(1)
        put(channel, b"a", b"", 1)
        commit(store, 1)
        with pytest.raises(BadOption, match=type(epoch).__name__):
            store.switch_epoch(epoch)
        commit(store, 2)


@pytest.mark.parametrize("version", ["5", None, 1.5, np.int64(5), BOUNDARY_END, WRITE_VERSION_END])
def test_a_boundary_that_is_none_is_refused_and_writes_go_on(tmp_path: Path, version: Any) -> None:
    store, [channel] = open_store(tmp_path)
    with store:
        store.switch_epoch(1)
        with pytest.raises(BadOption, match="GC boundary"):
            store.set_gc_boundary(version)
        put(channel, b"a", b"", 1)
        commit(store, 1)
        assert contents(store) == {(1, b"a"): (b"", 1, ())}


def test_above_the_highest_boundary_epochs_still_begin(tmp_path: Path) -> None:
    for epoch in (1, (1 << 63) - 2):
        store, _ = open_store(tmp_path)
        with store:
            store.switch_epoch(epoch)
            store.set_gc_boundary(BOUNDARY_END - 1)
            commit(store, epoch)


def test_an_interrupted_close_lets_go_of_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(lanes: Lanes, seconds: float) -> bool:
        raise KeyboardInterrupt

    store, _ = open_store(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(Lanes, "end", interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.close()
    store, _ = open_store(tmp_path)
    store.close()
