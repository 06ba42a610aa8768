"""What gpuplan's service accounts requested of an API server, from its audit log.

Takes a folder and returns the flags by which an API server writes the log there; takes the log and returns its events,
and those that were refused. Nothing but the accounts of gpuplan's namespace is logged. Judges nothing else: which
rights were never used is `granted`'s.
"""

import json
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from crds.v1alpha1 import names
from nodeagent.advertise import counts_right

ACCOUNTS = f"system:serviceaccount:{names.NAMESPACE}:"
LOG = "audit.log"
# A watch is logged when it begins, too: it may last longer than the test.
POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "Metadata", "userGroups": [f"system:serviceaccounts:{names.NAMESPACE}"]},
        {"level": "None"},
    ],
}
REFUSED = (401, 403)
PROBE = f"{counts_right.POLICY} with binding 'gpuplan-agent-node' denied request: {counts_right.REFUSAL}"
"""The refusal that the agent requests, by a dry run."""

Event = dict[str, Any]
Period = tuple[datetime, datetime]


def flags(folder: Path) -> list[str]:
    """Of an API server that writes `LOG` in this folder."""
    policy = folder / "audit-policy.json"
    policy.write_text(json.dumps(POLICY))
    return [f"--audit-policy-file={policy}", f"--audit-log-path={folder / LOG}"]


def audited(log: Path) -> Iterator[Event]:
    """What the product's accounts requested of the API server."""
    for line in log.read_text().splitlines():
        event = json.loads(line)
        if event["user"]["username"].startswith(ACCOUNTS):
            yield event


def account(event: Event) -> str:
    """Name of the account that sent it."""
    return str(event["user"]["username"]).removeprefix(ACCOUNTS)


def forbidden(log: Path, excused: Iterable[Period]) -> list[str]:
    """Requests that RBAC or a policy refused, but for those in periods when that was to be expected."""
    found, periods = [], list(excused)
    for event in audited(log):
        when = datetime.fromisoformat(event["requestReceivedTimestamp"])
        expected = any(began <= when <= ended for began, ended in periods)
        message = event["responseStatus"].get("message", "")
        asked = "dryRun=All" in event["requestURI"] and PROBE in message
        if event["responseStatus"]["code"] in REFUSED and not (expected or asked):
            found.append(f"{account(event)} {event['verb']} {event['requestURI']}: {message}")
    return found
