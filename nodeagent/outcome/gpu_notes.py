"""Words what is true of a GPU whatever its state is, and what a person may have to know or do.

Takes what a pass observed and its change of the GPU, returns sentences; empty where there is nothing to say. Pure.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping

from crds.v1alpha1.names import Reason
from nodeagent.desired.target import MigTarget, Refusal
from nodeagent.handover.mps_state import MpsState
from nodeagent.hardware.driver import MigMode
from nodeagent.observed.node import ObservedNode
from nodeagent.observed.orphans import Orphans
from nodeagent.outcome.gpu_outcome import NAMED_HOLDERS
from nodeagent.outcome.pass_result import PartitionOutcome, PassWork
from nodeagent.steps.changes import GpuChange


def notes(
    work: PassWork, change: GpuChange, partitions: Collection[PartitionOutcome], orphans: Orphans
) -> Iterator[str]:
    """All that there is to say of one GPU."""
    observation, advertised = work.observation, work.advertised
    yield unread_node_note(observation.readings.node, change)
    yield unhealthy_note(partitions)
    yield from left_notes(partitions, observation.witnessed.ends.pending)
    yield "" if change.converged and advertised.stage(change).schedulable else advertised.tainted
    yield pending_mode_note(change)
    yield from () if work.desired.paused else half_made_notes(change)
    yield from reduced_notes(change)
    yield from orphan_notes(orphans)
    yield mps_note(observation.readings.mps, change.gpu.uuid)
    yield advertised.mode_problems.get(change.gpu.uuid, "")


def unread_node_note(node: ObservedNode | None, change: GpuChange) -> str:
    if node is not None or not change.acts:
        return ""
    return "nothing is changed until this Node was read from the API, for it may not be enabled any more"


def unhealthy_note(partitions: Iterable[PartitionOutcome]) -> str:
    listed = sum(entry.unhealthy for entry in partitions)
    if not listed:
        return ""
    which = "its partition is" if listed == 1 else f"its {listed} partitions are"
    return f"{which} advertised as Unhealthy: no further pod gets one, and a pod that holds one keeps it"


def pending_mode_note(change: GpuChange) -> str:
    """A reset or a reboot would change it without a word, where no pod runs."""
    gpu, said = change.gpu, isinstance(change.target, Refusal) and change.target.reason is Reason.MIG_MODE_DISABLED
    if said or gpu.problem or gpu.mig_mode_pending in (gpu.mig_mode, MigMode.NOT_SUPPORTED):
        return ""
    now, then = ("on", "off") if gpu.mig_enabled else ("off", "on")
    return (
        f"MIG mode is {now} and becomes {then} with the next reset of the GPU or reboot (pending): to keep it {now}, "
        f"run nvidia-smi -i {gpu.index} -mig {int(gpu.mig_enabled)}"
    )


def half_made_notes(change: GpuChange) -> list[str]:
    """Without a journal entry of this agent they are left to an administrator."""
    return [
        f"GPU instance {instance.id} ({instance.placed}) has no compute instance, so no pod can use it: destroy it "
        f"with nvidia-smi mig -dgi -i {change.gpu.index} -gi {instance.id}, or plan this GPU"
        for instance in change.gpu.instances
        if instance.half_made and instance not in (*change.destroy, *change.finish)
    ]


def reduced_notes(change: GpuChange) -> list[str]:
    """The holder of one gets less than others of the same resource do."""
    planned = isinstance(change.target, MigTarget)
    remedy = "it is made again in full once it is free" if planned else "plan this GPU to change that"
    return [
        f"{instance.placed} was made by another program with {instance.compute[0].multiprocessors} of its "
        f"{instance.multiprocessors} multiprocessors: {remedy}"
        for instance in change.gpu.instances
        if instance.reduced
    ]


def mps_note(state: MpsState | None, gpu: str) -> str:
    """What happened to its MPS daemon lately."""
    alarm = next((daemon.alarm for daemon in (state.daemons if state is not None else ()) if daemon.gpu == gpu), "")
    return f"its MPS control daemon: {alarm}" if alarm else ""


def orphan_notes(orphans: Orphans) -> list[str]:
    found = [
        f"pod {pod} holds {device_id}, which no longer exists on this node: delete the pod"
        for device_id, pod in orphans[:NAMED_HOLDERS]
    ]
    return found + ([f"and {len(orphans) - NAMED_HOLDERS} more pods"] if len(orphans) > NAMED_HOLDERS else [])


def left_notes(partitions: Iterable[PartitionOutcome], left: Mapping[str, str]) -> list[str]:
    """`left` is what is left of pods that are gone, by id."""
    found = ((entry, what) for entry in partitions if (what := left.get(entry.partition.id)))
    return [f"{what}, which is gone: no pod gets {entry.partition.title} until it has ended" for entry, what in found]
