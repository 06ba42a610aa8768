"""What a pod's annotations make its containers, and the kubelet, do.

In: a pod's annotations. Out: a frozen `Script`; the durations are None where the annotation is absent. A value that
cannot be read is named in `problems` and otherwise ignored, so that a typing error never changes what a pod does in
silence.

Annotations, all below `sandbox.gpuplan.dev/`: `start-seconds`, `stop-seconds`, `unkillable-seconds` (`inf`: until
released), `allocate-seconds` (how much longer the pod's Allocate calls take), `exit-code`, `restarts` (how often the
containers are started again after they end).
"""

from collections.abc import Mapping
from dataclasses import dataclass

PREFIX = "sandbox.gpuplan.dev/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    start_seconds: float | None = None
    stop_seconds: float | None = None
    unkillable_seconds: float = 0.0
    allocate_seconds: float = 0.0
    exit_code: int = 0
    restarts: int = 0
    problems: tuple[str, ...] = ()


def script_of(annotations: Mapping[str, str]) -> Script:
    problems: list[str] = []

    def number(name: str) -> float | None:
        text = annotations.get(PREFIX + name)
        if text is None:
            return None
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if value >= 0:
            return value
        problems.append(f'annotation {PREFIX}{name} is "{text}", not a number of at least 0; it is ignored')
        return None

    return Script(
        start_seconds=number("start-seconds"),
        stop_seconds=number("stop-seconds"),
        unkillable_seconds=number("unkillable-seconds") or 0.0,
        allocate_seconds=number("allocate-seconds") or 0.0,
        exit_code=int(number("exit-code") or 0),
        restarts=int(number("restarts") or 0),
        problems=tuple(problems),
    )
