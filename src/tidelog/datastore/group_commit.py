"""The thread that group-commits epochs, and tells the application which ones are safe.

D1  notices are delivered in their order, one at a time, by this thread alone
D2  a listener that raises is logged; it stops neither the others nor the thread
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final, TypeAlias

from tidelog.core.session.output import Notice
from tidelog.datastore.lanes import Lanes

_logger: Final = logging.getLogger(__name__)

Listener: TypeAlias = Callable[[Notice], object]


class GroupCommitter:
    """Runs the control lane in a thread of its own."""

    def __init__(self, lanes: Lanes, listeners: list[Listener]) -> None:
        self._lanes = lanes
        self._listeners = listeners
        self._thread = threading.Thread(target=self._run, name="tidelog-group-commit", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, seconds: float) -> bool:
        """Let the thread finish what is under way; False if it did not end in time."""
        self._lanes.stop()
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def is_current(self) -> bool:
        """Whether the caller is this thread."""
        return threading.current_thread() is self._thread

    def _run(self) -> None:
        try:
            self._lanes.run_control(self._deliver)
        except Exception:
            # Everybody who waits was told by the lanes; here is what happened.
            _logger.exception("the group commit stopped")

    def _deliver(self, notice: Notice) -> None:
        for listener in list(self._listeners):
            try:
                listener(notice)
            except (Exception, SystemExit):  # The latter ends a thread, and this one only.
                _logger.exception("a listener failed at %s", notice)
