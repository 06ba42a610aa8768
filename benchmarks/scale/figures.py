"""What a run is worth in numbers: percentiles of waiting times, requests per pod, CPU seconds.

Takes moments of pods, lines of the API server's audit log and readings of processes, returns rows for people and JSON.
Pure but for iterating over the lines that it is given.
"""

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from crds.v1alpha1.names import NAMESPACE

ACCOUNT = f"system:serviceaccount:{NAMESPACE}:gpuplan-"
LEASES = "leases"
PERCENTS = (50, 95, 99)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodTimes:
    """Moments of one pod, in seconds on one clock; None: it has not happened."""

    created: float
    written: float | None = None
    """The controller's write of the plan that was confirmed as Ready."""
    ready: float | None = None
    """The plan that carries the pod's slice was seen Ready."""
    bound: float | None = None

    @property
    def found_ready(self) -> bool:
        """Its slice was there before it came."""
        return self.ready is not None and self.ready < self.created


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One line of the audit log."""

    client: str
    verb: str
    resource: str
    code: int
    at: float
    """Epoch seconds."""


def percentile(values: Sequence[float], percent: float) -> float | None:
    """The least value that so many percent of all do not exceed."""
    if not values:
        return None
    rank = math.ceil(percent / 100 * len(values))
    return sorted(values)[max(rank, 1) - 1]


STEPS: tuple[tuple[str, Callable[[PodTimes], float | None]], ...] = (
    ("created -> plan written", lambda pod: _between(pod.created, pod.written)),
    ("plan written -> plan Ready", lambda pod: _between(pod.written, pod.ready)),
    ("plan Ready -> bound", lambda pod: _between(pod.ready, pod.bound)),
    ("created -> plan Ready", lambda pod: _between(pod.created, pod.ready)),
    ("created -> bound", lambda pod: _between(pod.created, pod.bound)),
)


def waits(pods: Iterable[PodTimes]) -> dict[str, dict[str, Any]]:
    """Percentiles of each step, over the pods whose slices were made for them."""
    made = [pod for pod in pods if not pod.found_ready]
    found: dict[str, dict[str, Any]] = {}
    for name, step in STEPS:
        seconds = [value for pod in made if (value := step(pod)) is not None]
        # A scheduler that sees the Node's count may bind before the agent's word on it has come to us.
        found[name] = {"pods": len(seconds)} | {
            f"p{percent}": _rounded(percentile([max(value, 0.0) for value in seconds], percent)) for percent in PERCENTS
        }
    return found


def read_request(line: str) -> Request | None:
    """None for a line that is no finished request."""
    event = json.loads(line)
    if event.get("stage") != "ResponseComplete":
        return None
    what = event.get("objectRef") or {}
    resource = "/".join(filter(None, (what.get("resource", ""), what.get("subresource", ""))))
    return Request(
        client=client_of(event["user"].get("username", "")),
        verb=event["verb"],
        resource=resource or event.get("requestURI", "").partition("?")[0],
        code=int((event.get("responseStatus") or {}).get("code", 0)),
        at=datetime.fromisoformat(event["requestReceivedTimestamp"]).timestamp(),
    )


def client_of(user: str) -> str:
    """Who is behind a user name."""
    if user.startswith(ACCOUNT):
        return {"controller": "controller", "agent": "agents"}.get(user.removeprefix(ACCOUNT), user)
    if user.startswith("scale-"):
        return user.removeprefix("scale-")
    if user == "system:kube-scheduler":
        return "scheduler"
    if user == "system:kube-controller-manager" or user.startswith("system:serviceaccount:kube-system:"):
        return "controller-manager"
    return "api server" if user == "system:apiserver" else user


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Requests of one client."""

    requests: int
    leases: int
    """Of them: heartbeats, which grow with nodes and time, not with pods."""
    refused: int
    """Answered 403 or 429."""
    conflicts: int
    """Answered 409 or 422: another client was faster."""
    kinds: Mapping[str, int]

    def per_pod(self, pods: int) -> float:
        """Without heartbeats."""
        return round((self.requests - self.leases) / pods, 2) if pods else 0.0


def accounts(requests: Iterable[Request]) -> dict[str, Account]:
    """One account per client, the busiest first."""
    by_client: dict[str, list[Request]] = {}
    for request in requests:
        by_client.setdefault(request.client, []).append(request)
    ordered = sorted(by_client.items(), key=lambda entry: (-len(entry[1]), entry[0]))
    return {client: _account(mine) for client, mine in ordered}


def _account(mine: Sequence[Request]) -> Account:
    kinds = Counter(f"{request.verb} {request.resource}" for request in mine)
    codes = Counter(request.code for request in mine)
    return Account(
        requests=len(mine),
        leases=sum(request.resource == LEASES for request in mine),
        refused=codes[403] + codes[429],
        conflicts=codes[409] + codes[422],
        kinds=dict(sorted(kinds.items(), key=lambda entry: (-entry[1], entry[0]))),
    )


def table(result: Mapping[str, Any]) -> str:
    """For people."""
    lines = [", ".join(f"{value} {name}" for name, value in result["sizes"].items()), ""]
    head = "".join(f"{f'p{percent}':>9}" for percent in PERCENTS)
    lines.append(f"{'seconds':<28}{'pods':>8}{head}")
    for name, row in result["waits"].items():
        lines.append(f"{name:<28}{row['pods']:>8}" + "".join(_latest(row[f"p{percent}"]) for percent in PERCENTS))
    lines += ["", f"{'requests by':<28}{'all':>8}{'per pod':>9}{'leases':>9}{'refused':>9}{'409, 422':>9}"]
    for name, row in result["requests"].items():
        lines.append(
            f"{name:<28}{row['requests']:>8}{row['per_pod']:>9}{row['leases']:>9}{row['refused']:>9}{row['conflicts']:>9}"
        )
    lines += ["", f"{'process':<28}{'CPU s':>8}{'peak MiB':>9}"]
    for name, row in result["processes"].items():
        lines.append(f"{name:<28}{row['cpu_seconds']:>8}{row['peak_mib']:>9}")
    counts = {**result["counts"], **{f"agents: {name}": value for name, value in result.get("agents", {}).items()}}
    lines += ["", *(f"{name:<28}{value:>8}" for name, value in counts.items())]
    lines += [f"refused: {what}" for what in result.get("refused", ())]
    return "\n".join(lines)


def _latest(value: float | None) -> str:
    return f"{'-' if value is None else format(value, '.1f'):>9}"


def _between(begin: float | None, end: float | None) -> float | None:
    return None if begin is None or end is None else end - begin


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)
