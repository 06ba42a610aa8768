"""The log of every gpuplan process: one line per record on stderr, as `key=value` pairs or as a JSON object.

    time=2026-01-01T12:00:00Z level=info logger=nodeagent.report.reporter msg="GPU 0: Ready (Confirmed)" generation=7

`fields` adds pairs to one record, `bind` to every further record of its thread: an agent's pass binds the generation of
the plan that it works on, by which its lines are found among the controller's. Times are in UTC. `log_to_stderr` must
be called once, by the module that reads the command line.
"""

import json
import logging
import sys
import time
from contextvars import ContextVar
from typing import Any, Literal

Format = Literal["text", "json"]
FORMATS: tuple[Format, ...] = ("text", "json")
LEVELS = ("debug", "info", "warning", "error")
QUOTED = frozenset(" \"'=\t\n")
_bound: ContextVar[dict[str, Any]] = ContextVar("bound", default={})  # noqa: B039  # never changed, only replaced


def log_to_stderr(level: str, form: Format = "text", **always: str) -> None:
    """From now on everything of this severity or above, `level` in any case; `always` is in each line."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines(form, always))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


def fields(**pairs: Any) -> dict[str, Any]:
    """For `extra` of a record: `log.info("plan written", extra=fields(node="a", generation=7))`."""
    return {"fields": pairs}


def bind(**pairs: Any) -> None:
    """In every further line of this thread; replaces what was bound before."""
    _bound.set(pairs)


class _Lines(logging.Formatter):
    def __init__(self, form: Format, always: dict[str, str]) -> None:
        super().__init__(datefmt="%Y-%m-%dT%H:%M:%SZ")
        self.converter = time.gmtime
        self._json, self._always = form == "json", always

    def format(self, record: logging.LogRecord) -> str:
        pairs = {
            "time": self.formatTime(record, self.datefmt),
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": record.getMessage(),
            **self._always,
            **_bound.get(),
            **getattr(record, "fields", {}),
        }
        trace = self.formatException(record.exc_info) if record.exc_info else ""
        if self._json:
            return json.dumps(pairs | ({"trace": trace} if trace else {}), default=str, ensure_ascii=False)
        line = " ".join(f"{key}={_text(value)}" for key, value in pairs.items())
        return f"{line}\n{trace}" if trace else line


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    text = f"{value:.3f}" if isinstance(value, float) else str(value)
    return json.dumps(text, ensure_ascii=False) if not text or QUOTED.intersection(text) else text
