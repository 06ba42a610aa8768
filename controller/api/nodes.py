"""Parses raw JSON of nodes into NodeViews, once per watch event.

Takes an object as the API server sent it and returns its frozen view, or an `Unreadable` with the reason. Reads neither
a clock nor another object.
"""

from collections.abc import Mapping

from controller.api.pod_requests import amounts
from controller.api.reading import Raw, Unreadable, readable
from controller.model.scheduling import Taint
from controller.model.views import NodeView
from crds.v1alpha1 import names
from crds.v1alpha1.enablement import enablement
from crds.v1alpha1.gpu_labels import counts_mig_devices, is_smaller_card
from crds.v1alpha1.spec import MAX_GPUS, MAX_REPLICAS
from partitioning.models import model_for_product


def read_node(raw: Raw) -> NodeView | Unreadable:
    """The view of a node."""
    return readable("node", raw, _node)


def replicas(labels: Mapping[str, str]) -> tuple[int | None, str]:
    """Into how many replicas the node's label has MPS share each GPU, and what is wrong with that label."""
    given = labels.get(names.LABEL_MPS_REPLICAS)
    if given is None:
        return None, ""
    if given.isascii() and given.isdigit() and (int(given) == 0 or 2 <= int(given) <= MAX_REPLICAS):
        return int(given), ""
    return None, f"label {names.LABEL_MPS_REPLICAS}={given} is not understood: use 2 to {MAX_REPLICAS}, or 0 for none"


def _node(raw: Raw) -> NodeView:
    metadata, spec, status = raw["metadata"], raw.get("spec") or {}, raw.get("status") or {}
    labels = dict(metadata.get("labels") or {})
    return NodeView(
        name=metadata["name"],
        uid=metadata["uid"],
        labels=labels,
        taints=tuple(
            Taint(key=entry["key"], value=entry.get("value") or "", effect=entry.get("effect") or "")
            for entry in spec.get("taints") or ()
        ),
        unschedulable=bool(spec.get("unschedulable")),
        allocatable=amounts(status.get("allocatable")),
        ready=not metadata.get("deletionTimestamp")
        and all(
            condition.get("status") == "True"
            for condition in status.get("conditions") or ()
            if condition.get("type") == "Ready"
        ),
        partitioning=enablement(labels).mode,
        mps_replicas=replicas(labels)[0],
        shared_by_gib=_by_ack_alone(labels),
        product=_product(labels),
        gpu_count=0 if counts_mig_devices(labels) else _gpus(labels.get(names.LABEL_COUNT)),
        operator_record=(metadata.get("annotations") or {}).get(names.ANNOTATION_OPERATOR_LABELS),
        features=tuple(sorted(status.get("declaredFeatures") or ())),
    )


def _product(labels: Mapping[str, str]) -> str:
    """The label; none where a smaller card has the name of a known one, whose profiles it has not."""
    product = labels.get(names.LABEL_PRODUCT, "")
    known = model_for_product(product)
    return "" if known is not None and is_smaller_card(labels, known.memory_mib) else product


def _by_ack_alone(labels: Mapping[str, str]) -> bool:
    others = {names.LABEL_PARTITIONING, *names.FOREIGN_PARTITIONING_LABELS} - {names.LABEL_ACK}
    return labels.get(names.LABEL_ACK) == names.Partitioning.MPS and not others & labels.keys()


def _gpus(text: str | None) -> int:
    """A label's number; labels are free text, and a wrong one must cost neither the node nor memory for so many."""
    return min(int(text), MAX_GPUS) if text is not None and text.isascii() and text.isdigit() else 0
