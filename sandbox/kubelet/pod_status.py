"""Builds the status of a pod as its kubelet writes it.

Takes a `PodRun` or a `Rejection` and returns the JSON of `status`, as a strategic merge patch: conditions are merged by
type, so the scheduler's PodScheduled stays. Pure; every time in it is an argument.
"""

from collections.abc import Mapping
from typing import Any

from sandbox.kubelet.admission import Rejection
from sandbox.kubelet.lifecycle import ContainerRun, PodRun, Step
from sandbox.kubelet.node_status import invented_pod_ip
from sandbox.kubelet.pods import Role
from sandbox.kubelet.times import timestamp

Json = dict[str, Any]
_ENDED_REASON = {True: "Completed", False: "Error"}


def rejected_status(rejection: Rejection, now: float) -> Json:
    """Permanently: a kubelet never retries a rejected pod again."""
    return {
        "phase": "Failed",
        "reason": rejection.reason,
        "message": f"Pod was rejected: {rejection.message}",
        "startTime": timestamp(now),
    }


def status_of(run: PodRun, *, host_ip: str, now: float) -> Json:
    status: Json = {
        "phase": run.phase,
        "startTime": timestamp(run.admitted_at),
        "hostIP": host_ip,
        "hostIPs": [{"ip": host_ip}],
        "conditions": _conditions(run, now),
        "containerStatuses": _container_statuses(run, init=False),
    }
    if any(each.started_at is not None for each in run.containers.values()):
        # A kubelet has the address with the pod's sandbox, and writes it with its next status.
        pod_ip = host_ip if run.pod.host_network else invented_pod_ip(run.pod.uid)
        status |= {"podIP": pod_ip, "podIPs": [{"ip": pod_ip}]}
    init = _container_statuses(run, init=True)
    if init:
        status["initContainerStatuses"] = init
    return status


def _conditions(run: PodRun, now: float) -> list[Json]:
    completed = ("PodCompleted", "")
    done = run.terminated and run.phase == "Succeeded"
    not_ready = ("ContainersNotReady", f"containers with unready status: {_unready(run)}")
    if run.terminated:
        not_ready = completed if done else ("PodFailed", "")
    not_initialized = ("ContainersNotInitialized", f"containers with incomplete status: {_incomplete(run)}")
    initialized = (completed if done else ("", "")) if run.initialized else not_initialized
    wanted = (
        ("PodReadyToStartContainers", not run.terminated, ("", "")),
        ("Initialized", run.initialized, initialized),
        ("Ready", run.ready, ("", "") if run.ready else not_ready),
        ("ContainersReady", run.ready, ("", "") if run.ready else not_ready),
        ("PodScheduled", True, ("", "")),
    )
    return [_condition(run, kind, true, words, now) for kind, true, words in wanted]


def _incomplete(run: PodRun) -> str:
    """Plain init containers that have not succeeded, sidecars that never ran."""
    names = (
        name
        for name, each in run.containers.items()
        if (each.spec.role is Role.INIT and not each.succeeded)
        or (each.spec.role is Role.SIDECAR and each.started_at is None)
    )
    return f"[{' '.join(names)}]"


def _unready(run: PodRun) -> str:
    names = (n for n, each in run.containers.items() if each.spec.role is Role.APP and each.step is not Step.RUNNING)
    return f"[{' '.join(names)}]"


def _condition(run: PodRun, kind: str, true: bool, words: tuple[str, str], now: float) -> Json:
    return {
        "type": kind,
        "status": "True" if true else "False",
        # None removes what an earlier status contained: in a strategic merge an absent key stays.
        "reason": words[0] or None,
        "message": words[1] or None,
        "lastTransitionTime": timestamp(run.transition(kind, true=true, now=now)),
    }


def _container_statuses(run: PodRun, *, init: bool) -> list[Json]:
    return [
        _container_status(run, name, each)
        for name, each in run.containers.items()
        if (each.spec.role is not Role.APP) is init
    ]


def _container_status(run: PodRun, name: str, each: ContainerRun) -> Json:
    ready = each.succeeded if each.spec.role is Role.INIT else each.step is Step.RUNNING
    status: Json = {
        "name": name,
        "image": each.spec.image,
        "imageID": "",
        "ready": ready,
        "started": each.step is Step.RUNNING,
        "restartCount": each.restarts,
        "state": _state(run, each),
        "lastState": {},
    }
    if each.container_id and each.started_at is not None:
        status["containerID"] = f"sandbox://{each.container_id}"
    if each.restarts and each.finished_at is not None and each.step is not Step.ENDED:
        status["lastState"] = {"terminated": _terminated(each)}
    health = {resource: ids for (container, resource), ids in sorted(run.device_health.items()) if container == name}
    if health:
        status["allocatedResourcesStatus"] = [_resource_health(resource, ids) for resource, ids in health.items()]
    return status


def _state(run: PodRun, each: ContainerRun) -> Json:
    if each.step is Step.RUNNING:
        return {"running": {"startedAt": timestamp(each.started_at or 0)}}
    if each.step is Step.ENDED:
        return {"terminated": _terminated(each)}
    ordinary = "ContainerCreating" if run.initialized or each.spec.role is not Role.APP else "PodInitializing"
    waiting = {"reason": each.reason or ordinary}
    return {"waiting": waiting | ({"message": each.message} if each.message else {})}


def _terminated(each: ContainerRun) -> Json:
    return {
        "exitCode": each.exit_code,
        "reason": _ENDED_REASON[each.exit_code == 0],
        "startedAt": timestamp(each.started_at or each.finished_at or 0),
        "finishedAt": timestamp(each.finished_at or 0),
        "containerID": f"sandbox://{each.container_id}",
    }


def _resource_health(resource: str, ids: Mapping[str, bool]) -> Json:
    return {
        "name": resource,
        "resources": [
            {"resourceID": device_id, "health": "Healthy" if healthy else "Unhealthy"}
            for device_id, healthy in sorted(ids.items())
        ],
    }
