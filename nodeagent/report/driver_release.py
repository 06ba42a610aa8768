"""Decides whether gpuplan has let go of the driver, and what that waits for: the condition DriverReleased.

Takes what a pass observed and did. Released is a driver that this agent has closed, on a node whose kubelet lists no
device of ours, where no pod holds one and no MPS daemon of ours runs. Other programs are named and waited for by
people, who can end them. Pure.
"""

from collections.abc import Iterator

from crds.v1alpha1.names import Reason
from nodeagent.hardware.driver import DriverClosingError
from nodeagent.observed.kubelet import NoAnswer
from nodeagent.outcome.driver_clients import sentence
from nodeagent.outcome.gpu_outcome import NAMED_HOLDERS
from nodeagent.outcome.pass_result import PassWork


def driver_released(work: PassWork) -> tuple[bool, Reason, str] | None:
    """Status, reason and message; None where nothing requests it."""
    observation = work.observation
    if not observation.driver_closed or observation.reopens:
        return None
    found, unread = work.clients.get(None, ()), observation.witnessed.hidden_processes
    if isinstance(found, NoAnswer):
        unread, found = found.reason, ()
    also = f" Programs that have it open: {sentence(found)}." if found else ""
    none = f"Whether another program has it open is not known: {unread}" if unread else "No other program has it open"
    waits = next(_waits(work), None)
    if waits is not None:
        return False, waits[0], f"{waits[1]}.{also}"
    rest = f"{also} End them before you reset a GPU or change its MIG mode." if also else f" {none}."
    return True, observation.closed_reason, f"gpuplan has closed the driver, and no pod holds a device of it.{rest}"


def _waits(work: PassWork) -> Iterator[tuple[Reason, str]]:
    """What is in the way, the nearest first."""
    observation, confirmation = work.observation, work.advertised.confirmation
    # NVIDIA's device plugin is a program with the driver open, as others are.
    own = work.advertised.nvidia_plugin is None
    if own and (work.advertised.config.advertised() or not confirmation.all_withdrawn):
        yield Reason.WITHDRAWING, "the kubelet still lists devices, which are being withdrawn"
    if held := sorted(set(observation.usage.held.values())):
        more = f" and {len(held) - NAMED_HOLDERS} more" if len(held) > NAMED_HOLDERS else ""
        named = ", ".join(held[:NAMED_HOLDERS])
        yield Reason.WAITING_FOR_RELEASE, f"devices are held by pod {named}{more}: drain the node"
    # Of whatever device: an agent that started with the driver closed knows of no GPU, and its config may be lost.
    usage = observation.usage
    if why := next(iter((*usage.doubtful.values(), *usage.short.values())), usage.blind):
        yield Reason.USE_UNKNOWN, f"whether a device is in use is not known: {why}"
    # A supervisor that is away for a moment starts the daemons of these slices again.
    if (own and observation.readings.slices) or ((mps := observation.readings.mps) and (mps.daemons or mps.leftover)):
        yield Reason.WITHDRAWING, "MPS daemons run, and end once their slices have no holder and their GPU is planned"
    if isinstance(observation.driver_problem, DriverClosingError):
        yield observation.closed_reason, str(observation.driver_problem)
