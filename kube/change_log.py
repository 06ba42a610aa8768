"""Logs what is new, and not what was said in the pass before: a pass comes up to ten times a second.

In goes the sentence of each look, empty while all is well; out comes a warning where it differs from the last one.
"""

import logging


class ChangeLog:
    def __init__(self, log: logging.Logger) -> None:
        self._log, self._last = log, ""

    def warn(self, text: str) -> None:
        if text and text != self._last:
            self._log.warning("%s", text)
        self._last = text
