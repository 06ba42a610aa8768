"""Logs a problem once, and again only when its text changes: a pass may run up to ten times a second.

Takes the sentence of each pass, empty while all is well; warns where it differs from the last one. Never logs a
recovery.
"""

import logging


class ChangeLog:
    def __init__(self, log: logging.Logger) -> None:
        self._log, self._last = log, ""

    def warn(self, text: str) -> None:
        if text and text != self._last:
            self._log.warning("%s", text)
        self._last = text
