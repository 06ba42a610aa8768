"""Logs a problem once, and again only when its text changes: a pass may run up to ten times a second.

Takes the sentence of each pass, empty while all is well, and whose problem it is where there are several; warns where
it differs from the last one. Never logs a recovery.
"""

import logging
from collections.abc import Collection, Hashable


class ChangeLog:
    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._last: dict[Hashable, str] = {}

    def warn(self, text: str, about: Hashable = "") -> bool:
        """Whether it was logged."""
        if news := self.is_new(text, about):
            self._log.warning("%s", text)
        return news

    def is_new(self, text: str, about: Hashable = "") -> bool:
        """Whether it is worth a line, for one that the caller logs in its own way."""
        news = text not in ("", self._last.get(about))
        if text:
            self._last[about] = text
        else:
            self._last.pop(about, None)
        return news

    def last(self, about: Hashable = "") -> str:
        """The problem that it has now; empty while all is well."""
        return self._last.get(about, "")

    def retain(self, present: Collection[Hashable]) -> None:
        """Forget the problems of everything else."""
        self._last = {about: text for about, text in self._last.items() if about in present}
