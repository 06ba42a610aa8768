"""Why the scheduler keeps a pod off the nodes whose GPUs could hold its partitions, in words that name the obstacle.

Takes a pod and the nodes that filters rejected, returns an answer that names the taint, selector or cordon. The filters
themselves answer in kube-scheduler's words (`controller.simulator`); what they found is looked up here once more.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from controller.explanation.phrases import Answer, counted, joined, listed
from controller.model.reasons import UnplacedReason
from controller.model.scheduling import Taint
from controller.model.views import NodeView, PodView
from controller.planner.inventory.node_groups import IGNORED_TAINTS
from controller.planner.placement.constrained import NOT_EXAMINED
from controller.simulator.attempts import TOO_MUCH
from controller.simulator.filters import ENFORCED, UNSCHEDULABLE_TAINT
from controller.simulator.selectors import untolerated
from controller.simulator.verdicts import DoesNotFit
from controller.simulator.volumes import VOLUME_FILTERS

NO_WORK_LEFT = Answer(
    UnplacedReason.NO_CAPACITY,
    "The planning pass used up its work or its time before it examined this pod on every node. Wait, or ask an "
    "administrator to check in the controller's log which pods took most.",
)
TOO_COSTLY = Answer(
    UnplacedReason.NOT_SERVED,
    "Its node affinity has too many terms for so many nodes, so nothing is planned for it. Use fewer terms, and In "
    "with several values in place of several terms.",
)
_WhyNot: TypeAlias = Callable[[PodView, NodeView], DoesNotFit | None]
_NO_CLAIM = re.compile(r'persistentvolumeclaim "(.+)" not found')
_NO_PREFILTER = re.compile(r'running "(.+)" filter plugin: no state from its PreFilter')
_ASK_FOR_PREFILTER = "Change the pod's schedulerName, or ask an administrator to enable that PreFilter in its profile."


class _Obstacle(NamedTuple):
    """The words after one node, after several nodes, and what would help; all of them for several obstacles."""

    one: str
    many: str
    remedy: str
    number: int = 1


def kept_off(pod: PodView, rejected: Sequence[tuple[NodeView, DoesNotFit]], why_not: _WhyNot) -> Answer:
    """By filters that read the node alone; `rejected` are all nodes that could hold it otherwise."""
    nodes: dict[_Obstacle, list[str]] = {}
    for node, refusal in rejected:
        nodes.setdefault(_all_of(_obstacles(pod, node, refusal, why_not)), []).append(node.name)
    # Of those that are least to take away the one on most nodes: that gives the pod most places.
    by_number = sorted(nodes, key=lambda obstacle: (obstacle.number, -len(nodes[obstacle]), obstacle))
    remedy = by_number[0].remedy
    if len(rejected) == 1:
        message = f"The only suitable node, {rejected[0][0].name}, {by_number[0].one}."
    elif len(by_number) == 1:
        message = f"All {len(rejected)} suitable nodes {by_number[0].many}."
    else:
        parts = [f"{len(nodes[found])} {found.one if len(nodes[found]) == 1 else found.many}" for found in by_number]
        message = f"None of the {len(rejected)} suitable nodes accepts this pod: {joined(parts)}."
    detail = " ".join(
        f"{listed(nodes[found])} {found.one if len(nodes[found]) == 1 else found.many}." for found in by_number
    )
    return Answer(UnplacedReason.FILTERED_BY_SCHEDULER, f"{message} {remedy}", detail if len(rejected) > 1 else "")


def cordoned(nodes: Sequence[str]) -> Answer:
    """Nothing else keeps the pod off them."""
    what, which = (f"Node {nodes[0]} is", "it") if len(nodes) == 1 else (f"Nodes {listed(nodes)} are", "one")
    message = f"{what} cordoned. Wait, or ask an administrator to uncordon {which}."
    return Answer(UnplacedReason.FILTERED_BY_SCHEDULER, message)


def kept_off_by_others(nodes: int, reasons: Mapping[str, int], which: str = "every suitable node") -> Answer:
    """By filters that read other pods or volumes; `reasons` in the scheduler's words, with numbers of nodes."""
    if TOO_MUCH.message in reasons:
        return Answer(
            UnplacedReason.NOT_SERVED,
            "Its affinity terms or topology spread constraints would have to be compared with too many pods, so "
            "nothing is planned for it. Use fewer terms, and In with few values in place of NotIn and Exists.",
        )
    if NOT_EXAMINED.message in reasons:
        return NO_WORK_LEFT
    words = {reason: count for reason, count in reasons.items() if count}
    lacking = next((found[1] for reason in sorted(words) if (found := _NO_CLAIM.fullmatch(reason))), None)
    remedy = "Change the pod's affinity, topology spread constraints or volumes."
    if lacking is not None:
        remedy = f"Create the claim {lacking}."
    elif any(map(_NO_PREFILTER.fullmatch, words)):
        remedy = _ASK_FOR_PREFILTER
    message = f"The scheduler rejects this pod on {which}: {joined(sorted(words))}. {remedy}"
    detail = ", ".join(f"{count} {reason}" for reason, count in sorted(words.items()))
    return Answer(UnplacedReason.FILTERED_BY_SCHEDULER, message, f"Of {counted(nodes, 'node')}: {detail}.")


def _obstacles(pod: PodView, node: NodeView, refusal: DoesNotFit | None, why_not: _WhyNot) -> Iterator[_Obstacle]:
    """What a filter finds once what the ones before it found is taken away."""
    while refusal is not None:
        yield _obstacle(pod, node, refusal)
        if refusal.plugin == "NodeUnschedulable":
            node = uncordoned(node)
        elif refusal.plugin == "TaintToleration":
            node = unmarked(node)
        elif refusal.plugin == "NodeAffinity" and pod.node_selector:
            pod = replace(pod, uid="", node_selector=())
        elif refusal.plugin == "NodeAffinity" and pod.node_affinity is not None:
            pod = replace(pod, uid="", node_affinity=None)
        else:
            return
        refusal = why_not(pod, node)


def _all_of(found: Iterable[_Obstacle]) -> _Obstacle:
    """The selector and affinity first: without them the pod may go where nothing else is in its way."""
    each = sorted(dict.fromkeys(found), key=lambda obstacle: not obstacle.one.startswith("does not match"))
    one, many, remedies = (list(texts) for texts in zip(*(obstacle[:3] for obstacle in each), strict=True))
    return _Obstacle(joined(one), joined(many), " ".join(remedies), len(each))


def _obstacle(pod: PodView, node: NodeView, refusal: DoesNotFit) -> _Obstacle:
    if found := _NO_PREFILTER.fullmatch(refusal.message):
        what = f"{found[1]} of scheduler {pod.scheduler_name}, whose PreFilter is disabled"
        return _Obstacle(f"fails filter {what}", f"fail filter {what}", _ASK_FOR_PREFILTER)
    if refusal is ENFORCED:
        what = f"match the node affinity that scheduler {pod.scheduler_name} adds to all pods"
        remedy = "Change the pod's schedulerName, or ask an administrator to label the node accordingly."
        return _Obstacle(f"does not {what}", f"do not {what}", remedy)
    match refusal.plugin:
        case "TaintToleration":
            taints = [taint for taint in node.taints if taint.key not in IGNORED_TAINTS and untolerated(pod, [taint])]
            if taints:
                names = f"taint{'s' if len(taints) > 1 else ''} {joined([_spelled(taint) for taint in taints])}"
                which = "each" if len(taints) > 1 else "it"
                return _Obstacle(f"has {names}", f"have {names}", f"Add a toleration for {which} to the pod.")
        case "NodeUnschedulable":
            return _Obstacle("is cordoned", "are cordoned", "Wait, or ask an administrator to uncordon the node.")
        case "NodeAffinity":
            missing = [f"{key}={value}" for key, value in pod.node_selector if node.labels.get(key) != value]
            if missing or pod.node_affinity is not None:
                field = "node selector" if missing else "node affinity"
                what = f"match the pod's {f'{field} {joined(missing)}' if missing else f'required {field}'}"
                return _Obstacle(f"does not {what}", f"do not {what}", f"Change the pod's {field}.")
    words = refusal.message.removeprefix("node(s) ")
    what = "volumes" if refusal.plugin in VOLUME_FILTERS else "scheduling constraints"
    return _Obstacle(words, words, f"Change the pod's {what}.")


def _spelled(taint: Taint) -> str:
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"


def unmarked(node: NodeView) -> NodeView:
    """Without any taint."""
    return replace(node, unschedulable=False, taints=())


def uncordoned(node: NodeView) -> NodeView:
    return replace(
        node, unschedulable=False, taints=tuple(taint for taint in node.taints if taint.key != UNSCHEDULABLE_TAINT.key)
    )
