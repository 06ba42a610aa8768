"""How long a container runs, read from its command.

In: `command` and `args` of a container. Out: seconds, `inf` for a command that never ends, or None where no `sleep`
is named. The stand-in runs no process, so nothing else of the command is looked at.
"""

import math
import re
from collections.abc import Sequence

_SLEEP = re.compile(r"(?<![\w-])sleep\b((?:\s+(?:\d+(?:\.\d+)?|\.\d+)[smhd]?(?![\w.]))*)")
_LOOP = re.compile(r"(?<![\w-])(?:while|until|for)\b")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def running_seconds(command: Sequence[str], args: Sequence[str]) -> float | None:
    """Sum of all `sleep N` in the command line; a loop around one, or `sleep infinity`, never ends."""
    text = " ".join([*command, *args])
    operands = [match.group(1).split() for match in _SLEEP.finditer(text)]
    if not operands:
        return None
    if _LOOP.search(text) or not all(operands):
        return math.inf
    return sum(_seconds(word) for words in operands for word in words)


def _seconds(word: str) -> float:
    unit = _SECONDS.get(word[-1])
    return float(word[:-1]) * unit if unit else float(word)
