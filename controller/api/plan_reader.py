"""Parses each version of a plan once, however many ways it arrives.

Our own write is answered with the object that the watch brings as well, at the same moment or a little later. Readings
are shared as long as something holds them; the cache never keeps an object alive beyond the most recent few. A model
that a status reports costs its reader some tenths of a second once, for its tables. So a node is believed a few
unlike ones in an hour, and of others what the catalogue has. Must never let one node's status cost another its models.
"""

import json
import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from itertools import takewhile
from typing import Any
from weakref import WeakValueDictionary

from controller.api.plans import PlanReading, read_plan
from controller.api.reading import Unreadable
from kube.change_log import ChangeLog

RECENT = 64
MOST_MODELS, FRESH_SECONDS = 16, 3600.0
"""Unlike models of one node, and how long after the last report each of them counts: twice what one status holds."""


class PlanReader:
    """Reads each version of a plan once, as long as its reading is in use; callable from any thread.

    What our own write was answered with comes by the watch as well, at the same moment or a little later.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._lock, self._clock = threading.Lock(), clock
        self._changes = ChangeLog(logging.getLogger(__name__))
        self._reported: dict[str, dict[str, float]] = {}
        """When each model was last reported, by plan and the model's text; plans that were read last are last."""
        self._recent: deque[PlanReading] = deque(maxlen=RECENT)
        """Kept although another version may have taken their place before the watch brought them."""
        self._known: WeakValueDictionary[tuple[str, str], PlanReading] = WeakValueDictionary()

    def __call__(self, raw: Mapping[str, Any]) -> PlanReading | Unreadable:
        """The reading of a plan."""
        metadata = raw.get("metadata") or {}
        version = (str(metadata.get("uid")), str(metadata.get("resourceVersion")))
        with self._lock:
            known = self._known.get(version)
            if known is not None:
                return known
            read = read_plan(self._believed(raw))
            if isinstance(read, PlanReading):
                self._known[version] = read
                self._recent.append(read)
            return read

    def _believed(self, raw: Mapping[str, Any]) -> Mapping[str, Any]:
        """The plan without models that its node has reported too many of."""
        name, status, now = str((raw.get("metadata") or {}).get("name")), raw.get("status"), self._clock()
        models = status.get("models") if isinstance(status, Mapping) else None
        if not isinstance(status, Mapping) or not isinstance(models, list):
            return raw
        mine = {text: at for text, at in self._reported.pop(name, {}).items() if now - at < FRESH_SECONDS}
        for text in (texts := [json.dumps(model, sort_keys=True) for model in models]):
            if text in mine or len(mine) < MOST_MODELS:
                mine[text] = now
        believed = [model for text, model in zip(texts, models, strict=True) if text in mine]
        self._reported.update({name: mine} if mine else {})
        over = takewhile(lambda each: now - max(each[1].values()) >= FRESH_SECONDS, self._reported.items())
        for gone in [known for known, _ in over]:
            del self._reported[gone]
        self._changes.retain(self._reported)
        limit = f"plan {name} reports more than {MOST_MODELS} unlike GPU models in an hour: the catalogue counts"
        why = "" if believed == models else limit
        self._changes.warn(why, about=name)
        return {**raw, "status": {**status, "models": believed}} if why else raw
