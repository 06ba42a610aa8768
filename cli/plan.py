"""Runs `gpuplan plan -f FILES…`: shows what the controller would do with a cluster that is in files.

Takes manifests or dumps of `kubectl get nodes,pods,gpp -A -o yaml`; prints which pods would be placed where, why the
others would not, and the plans that would be written, as tables for people or as JSON. A pin that no agent can make
is an error. Never writes to a cluster.
"""

import argparse
import json
import shutil
import sys
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from cli.examples import add_command, add_files
from cli.manifests import load_cluster
from cli.tables import WRAP_WIDTH, wrapped_table
from cli.whatif import KINDS, LeftOut, WhatIf, what_if
from controller.actions.plan_writer import planned_items
from controller.config.options import planner_options
from controller.config.settings import Settings, load_settings
from controller.explanation.phrases import counted
from controller.gc_pause import collector_paused
from controller.model.known_geometries import all_warnings
from controller.model.reasons import UnplacedReason
from controller.model.results import NodeFailure, PlanningResult, Supply, Unplaced
from controller.model.views import PodKey, PodView
from controller.planning import plan
from crds.v1alpha1.plan import plan_body
from partitioning.resources import WHOLE

Json = dict[str, Any]
MAY_LACK_NODES = (UnplacedReason.AWAITING_AGENT, UnplacedReason.NEVER_FITS)
MOST_NODES = 3
_SUPPLY = {
    Supply.EXISTING.value: "It can start at once: what it requests is free.",
    Supply.UNDER_WAY.value: "It starts on partitions that are being made.",
    Supply.NEW.value: "It starts on partitions that the plans below add.",
}


def add_plan(commands: Any) -> None:
    """Declare `plan`."""
    parser = add_command(
        commands,
        "plan",
        "show what would be planned for a cluster in files; write nothing",
        examples=(
            "gpuplan plan -f examples/what-if/e-two-holes.yaml",
            "kubectl get nodes,pods,gpp -A -o yaml | gpuplan plan -f - --exit-code",
        ),
    )
    add_files(parser, "manifests or dumps of `kubectl get nodes,pods,gpp -A -o yaml`")
    parser.add_argument("-o", "--output", choices=["table", "json"], default="table")
    parser.add_argument("--config", type=Path, metavar="FILE", help="the controller's settings (default: as they ship)")
    parser.add_argument(
        "--exit-code",
        action="store_true",
        help="exit 1 when a pod that requests GPUs is not placed, or a pod cannot be read",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Read, plan, print."""
    options = planner_options(load_settings(arguments.config) if arguments.config else Settings())
    files = load_cluster(arguments.filename, KINDS)
    found = what_if(files.objects, options)
    if options.geometries is not None:
        models = [gpu.model for node in found.snapshot.plans for gpu in node.gpus if gpu.model is not None]
        found.remarks += [f"knownMigGeometriesFile: {line}" for line in all_warnings(options.geometries, models)]
    found.remarks += [
        f"Ignored {counted(count, kind)} (only Nodes, Pods, plans and what pods refer to are read)."
        for kind, count in files.skipped.items()
    ]
    began = time.perf_counter()
    with collector_paused():  # as the controller's loop does
        result = plan(found.snapshot, options)
    seconds = time.perf_counter() - began
    if not found.snapshot.nodes and not found.left_out:
        found.remarks.append("There are no Nodes in the input. Pass a dump of nodes, pods and gpp.")
    result = replace(result, unplaced=(*result.unplaced, *_left_to_others(found, result)))
    plans, unwritable = _plans(found, result)
    failures = (*result.failures, *unwritable)
    broken = [(one.node, f"planning it failed: {one.message}: report this together with the files") for one in failures]
    found.left_out += [LeftOut(kind="Node", name=name, reason=reason) for name, reason in broken]
    document = _document(found, _without(result, {failure.node for failure in failures}), plans, seconds)
    if arguments.output == "json":
        print(json.dumps(document, indent=2))
    else:
        tables = [_pod_table(document), *([_plan_table(document)] if document["plans"] else [])]
        print(*tables, _summary(document), sep="\n\n")
        left = [f"{one['kind']} {one['name']} is left out: {one['reason']}" for one in document["leftOut"]]
        for line in (*left, *document["impossible"], *document["remarks"]):
            print(f"gpuplan: {line}", file=sys.stderr)
    if found.impossible:
        return 2
    missing = document["unplaced"] or any(one.kind == "Pod" for one in found.left_out)
    return 1 if arguments.exit_code and missing else 0


def _left_to_others(found: WhatIf, result: PlanningResult) -> Iterable[Unplaced]:
    """Pods that request whole GPUs from another scheduler, or from DRA: the planner does not report these."""
    for pod in _unreported(found, result):
        if pod.gpu:
            message = f"{_whose(pod, found)}, so gpuplan plans nothing for it."
            yield Unplaced(uid=pod.uid, key=pod.key, reason=UnplacedReason.NOT_SERVED, message=message)


def _unreported(found: WhatIf, result: PlanningResult) -> list[PodView]:
    reported = {one.uid for one in result.placed} | {one.uid for one in result.unplaced}
    return [pod for pod in found.snapshot.pending if not pod.deleting and pod.uid not in reported]


def _whose(pod: PodView, found: WhatIf) -> str:
    if pod.claims:
        return "DRA serves the resource claims of this pod"
    shares = [resource for resource, _ in pod.gpu if resource != WHOLE]
    if shares:
        return f"{pod.scheduler_name} binds this pod where {shares[0]} is free"
    if WHOLE in found.snapshot.context.dra_resources:
        return f"A DeviceClass maps {WHOLE} and DRA serves it"
    return f"Scheduler {pod.scheduler_name} serves this pod"


def _without(result: PlanningResult, nodes: Collection[str]) -> PlanningResult:
    """Pods that were placed on nodes whose plans cannot be written get nothing."""
    lost = [
        Unplaced(uid=one.uid, key=one.key, reason=UnplacedReason.BLOCKED, message=f"node {one.node} is left out")
        for one in result.placed
        if one.node in nodes
    ]
    placed = tuple(one for one in result.placed if one.node not in nodes)
    return replace(result, placed=placed, unplaced=(*result.unplaced, *lost)) if lost else result


def _document(found: WhatIf, result: PlanningResult, plans: list[Json], seconds: float) -> Json:
    placed = sorted(result.placed, key=lambda one: one.key)
    unplaced = sorted(result.unplaced, key=lambda one: one.key)
    return {
        "placed": [{**_pod(one.key), "node": one.node, "supply": one.supply.value} for one in placed],
        "unplaced": [
            {**_pod(one.key), "reason": one.reason.value, "message": _message(one.reason, one.full, found)}
            for one in unplaced
        ],
        "plans": plans,
        "bound": result.bound,
        "seconds": round(seconds, 6),
        "leftOut": [{"kind": one.kind, "name": one.name, "reason": one.reason} for one in found.left_out],
        "withoutRequest": sum(not pod.gpu for pod in _unreported(found, result)),
        "impossible": found.impossible,
        "remarks": [*found.remarks, *result.remarks],
    }


def _pod(key: PodKey) -> Json:
    return {"pod": "/".join(key), "namespace": key[0], "name": key[1]}


def _message(reason: UnplacedReason, message: str, found: WhatIf) -> str:
    """Planning knows nothing of a node that is left out, or waits for its agent; here no agent will follow."""
    nodes = [one for one in found.left_out if one.kind == "Node"] if reason in MAY_LACK_NODES else []
    named = [f"node {one.name} is left out: {one.reason}" for one in nodes[:MOST_NODES]]
    more = [f"nodes left out in all: {len(nodes)}"] if len(nodes) > MOST_NODES else []
    # Before an installation there is no agent to look after.
    if reason is UnplacedReason.AWAITING_AGENT and any(f" {one.name} " in message for one in nodes):
        message = "Too little is known of the GPUs that could hold it"
    return "; ".join([message.removesuffix(".") if named else message, *named, *more])


def _plans(found: WhatIf, result: PlanningResult) -> tuple[list[Json], list[NodeFailure]]:
    """The part of each changed plan that the controller writes, as a whole object; nodes where that is impossible."""
    plans, failures = [], []
    for change in sorted(result.node_changes, key=lambda change: change.node):
        try:
            items = planned_items(change, found.readings[change.node])
        except Exception as error:  # noqa: BLE001 - the other nodes' plans can be shown
            failures.append(NodeFailure.of(change.node, error))
        else:
            plans.append(plan_body({"name": change.node}, spec={"nodeName": change.node, "planned": {"gpus": items}}))
    return plans, failures


def _pod_table(document: Json) -> str:
    rows = [
        (one["namespace"], one["name"], one["node"], "Placed", _SUPPLY[one["supply"]]) for one in document["placed"]
    ]
    rows += [(one["namespace"], one["name"], "-", one["reason"], one["message"]) for one in document["unplaced"]]
    return wrapped_table(("NAMESPACE", "NAME", "NODE", "OUTCOME", "MESSAGE"), sorted(rows), _width())


def _plan_table(document: Json) -> str:
    rows = [
        (found["metadata"]["name"], str(item["index"]), _spelled(item))
        for found in document["plans"]
        for item in found["spec"]["planned"]["gpus"]
    ]
    return wrapped_table(("PLAN", "GPU", "PLANNED"), rows, _width())


def _width() -> int:
    """Of the terminal; lines longer than that of a wide one are hard to read."""
    return min(shutil.get_terminal_size(fallback=(WRAP_WIDTH, 0)).columns, WRAP_WIDTH)


def _spelled(item: Mapping[str, Any]) -> str:
    """One GPU's item in one line: instances with their starts, slices with their counts."""
    if "mig" in item:
        instances = item["mig"]["instances"]
        return ", ".join(f"{one['profile']}@{one['start']}" if "start" in one else one["profile"] for one in instances)
    if "mps" in item:
        shares = ", ".join(_share(one) for one in item["mps"].get("slices") or ())
        return shares or f"{item['mps']['replicas']} replicas"
    return "whole"


def _share(one: Mapping[str, Any]) -> str:
    size = f"{one['memoryGB']}gb" if "memoryGB" in one else f"{one['memoryGiB']}gib"
    return f"{one.get('count', 1)} x {size}"


def _summary(document: Json) -> str:
    placed, pods = len(document["placed"]), len(document["placed"]) + len(document["unplaced"])
    others = document["withoutRequest"]
    ignored = f"\n{counted(others, 'pod')} {'requests' if others == 1 else 'request'} nothing that gpuplan serves"
    return (
        f"{placed} of {pods} pods placed (at most {document['bound']} could be), "
        f"{counted(len(document['plans']), 'plan')} to write, in {document['seconds']:.3f} s{ignored if others else ''}"
    )
