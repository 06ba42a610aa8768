"""What a reason promises is true, on random clusters that people have limited in many ways.

A pod that is to wait could run if all others ended. One that never fits could not run even where nothing limits any
node. The pod of a person who does what each sentence says runs in the end, and no later sentence says "never".
"""

import random
import re
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from controller.model.reasons import UnplacedReason
from controller.model.results import Unplaced
from controller.model.snapshot import Snapshot
from controller.model.views import PodView
from controller.planning import plan
from tests.controller.explanation.limited import after_remedy, emptied, lifted, limited_cluster
from tests.drawn import examples

WAIT = {
    UnplacedReason.WAITS_FOR_RELEASE,
    UnplacedReason.NO_CAPACITY,
    UnplacedReason.FRAGMENTED,
    UnplacedReason.NO_NODE_RESOURCES,
}
STEPS = 12
"""More than there are ways to limit a node."""


def missed_of(snapshot: Snapshot, pod: PodView) -> Unplaced | None:
    return next((one for one in plan(snapshot).unplaced if one.uid == pod.uid), None)


def untruth(snapshot: Snapshot, pod: PodView, missed: Unplaced) -> str:
    """What of the message is not true; '' where all is."""
    reported = [missed]
    for _ in range(STEPS):
        if missed.reason in WAIT:
            still = missed_of(emptied(snapshot, replace(pod, gang="", gang_size=0)), pod)
            return "" if still is None else f"{reported}: alone, {still}"
        if missed.reason is UnplacedReason.NEVER_FITS:
            if len(reported) > 1:
                return f"{reported}: led to never"
            return f"{reported}: fits" if missed_of(lifted(snapshot, pod), pod) is None else ""
        changed = after_remedy(snapshot, pod, missed)
        if changed is None:
            return ""
        snapshot = changed
        pod = next(one for one in snapshot.pending if one.uid == pod.uid)
        found = missed_of(snapshot, pod)
        if found is None:
            return ""
        missed = found
        reported.append(missed)
    return f"{reported}: no end"


@settings(max_examples=examples(200))
@given(st.randoms(use_true_random=False))
def test_what_a_message_says_is_true(rng: random.Random) -> None:
    snapshot = limited_cluster(rng)
    pods = {one.uid: one for one in snapshot.pending}
    for missed in plan(snapshot).unplaced:
        sentences = re.split(r"(?<=\.) ", missed.full)
        assert len(sentences) == len(set(sentences)), missed
        found = untruth(snapshot, pods[missed.uid], missed)
        assert not found, found
