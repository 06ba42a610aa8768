"""Questions about the caller: who am I, may I. There is no RBAC here, so everybody may do everything.

Comes in: a posted review. Goes out: the review with its answer.
"""

from __future__ import annotations

from typing import Final

from sandbox.apiserver.api.discovery import REVIEWS
from sandbox.apiserver.objects import Obj

_EVERYTHING: Final = {
    "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
    "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    "incomplete": False,
}
_ANSWERS: Final[dict[str, Obj]] = {
    "SelfSubjectAccessReview": {"allowed": True, "reason": "the sandbox has no authorization"},
    "SelfSubjectRulesReview": _EVERYTHING,
    "SelfSubjectReview": {"userInfo": {"username": "sandbox", "groups": ["system:masters", "system:authenticated"]}},
}


def answer(group: str, version: str, plural: str, body: Obj) -> Obj | None:
    """The answered review, or None where the path names none."""
    for review_group, review_version, review_plural, kind, _ in REVIEWS:
        if (review_group, review_version, review_plural) == (group, version, plural):
            identity = {"kind": kind, "apiVersion": f"{group}/{version}", "metadata": {}}
            return {**identity, **({"spec": body["spec"]} if "spec" in body else {}), "status": _ANSWERS[kind]}
    return None
