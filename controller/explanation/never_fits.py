"""Why no GPU of the cluster could hold a request, even empty: no model has it, or a setting forbids it.

Takes the stock of the nodes and the partitions of a request that no node's GPUs hold, returns the reason and a message
with the remedy. Never looks at what is free, nor at what the scheduler would allow.
"""

from collections.abc import Iterable, Sequence

from controller.explanation.capability import could_hold, gpu_models, largest_slice_gb, most_on_empty
from controller.explanation.causes import Cause, is_meant_for
from controller.explanation.phrases import Answer, listed, sentence, short_resource, spelled
from controller.explanation.remedies import nearest
from controller.model.demand import Wants, kind_of
from controller.model.reasons import UnplacedReason
from controller.planner.inventory.stock import Ineligible, NodeStock
from crds.v1alpha1.names import LABEL_PARTITIONING
from partitioning.models import GpuModel
from partitioning.resources import MigRequest, MpsRequest, mps_resource_gb

_FILE = "knownMigGeometriesFile"


def no_gpu(all_of: Sequence[NodeStock], stocks: Sequence[NodeStock], wants: Wants) -> Answer:
    """`stocks`: of `all_of`, one for each kind of GPUs and label that nodes have."""
    if not any(stock.models for stock in stocks):
        return _no_model(all_of)
    # What other nodes offer is no remedy: a request for it would be refused there.
    meant = [stock for stock in stocks if stock.models and is_meant_for(stock, wants)]
    stocks = meant or stocks
    models = _models(model for stock in stocks for model in gpu_models(stock))
    restricted = any(model.geometries is not None for model in models)
    if restricted and any(could_hold(stock, wants, allowed=False) for stock in stocks):
        return Answer(UnplacedReason.BLOCKED, _forbidden(stocks, models, wants))
    for resource, _ in wants:
        if not any(most_on_empty(model, resource) for model in models):
            return _without_placements(resource, models) or Answer(
                UnplacedReason.NEVER_FITS, _not_offered(resource, models, labelled=bool(meant))
            )
    most, resource = _scarcest(stocks, wants)
    message = f"No node has GPUs for {spelled(wants)} together: the largest holds {most} {resource}. Request fewer."
    if most >= dict(wants)[resource]:
        message = f"No node has GPUs for {spelled(wants)} together, only for each alone. Request them in several pods."
    return Answer(UnplacedReason.NEVER_FITS, message)


def _models(all_of: Iterable[GpuModel]) -> list[GpuModel]:
    """One of each, sorted; where a file restricts, that which has least: others keep what they hold already."""
    least: dict[str, GpuModel] = {}
    for model in all_of:
        known = least.get(model.key)
        if known is None or (known is not model and _capability(model) < _capability(known)):
            least[model.key] = model
    return [least[key] for key in sorted(least)]


def _capability(model: GpuModel) -> int:
    return sum(spec.max_instances for spec in model.profiles)


def _scarcest(stocks: Sequence[NodeStock], wants: Wants) -> tuple[int, str]:
    """How many the best node could hold of the first resource of which that is too few; else of the first."""
    most = {
        name: max(sum(most_on_empty(model, name) for model in gpu_models(stock)) for stock in stocks)
        for name, _ in wants
    }
    resource = next((name for name, count in wants if most[name] < count), wants[0][0])
    return most[resource], resource


def _forbidden(stocks: Sequence[NodeStock], models: Sequence[GpuModel], wants: Wants) -> str:
    able = _models(model for stock in stocks for model in gpu_models(stock, allowed=False))
    for resource, _ in wants:
        if any(most_on_empty(model, resource) for model in models):
            continue
        capable = {model.key for model in able if most_on_empty(model, resource)}
        allowed = _listed_profiles([model for model in models if model.key in capable])
        return (
            f"{_FILE} does not allow {resource}: {allowed}. Request one of these, or ask an administrator to allow it."
        )
    most, resource = _scarcest(stocks, wants)
    return (
        f"{_FILE} allows at most {most} {resource} on one node, and the pod requests {spelled(wants)}. "
        "Request fewer, or ask an administrator to allow more."
    )


def _no_model(stocks: Sequence[NodeStock]) -> Answer:
    """No GPU is of a model that NVML, as its agent reports it, or the catalogue knows."""
    fresh = [
        Cause(number, one.name, None, Ineligible.NOT_REPORTED)
        for number, one in enumerate(stocks)
        if one.ineligible in (Ineligible.NO_PLAN, Ineligible.NOT_REPORTED)
    ]
    if fresh:
        return nearest(fresh)
    unknown = [
        Cause(number, one.name, gpu.view.index, Ineligible.UNKNOWN_MODEL)
        for number, one in enumerate(stocks)
        for gpu in one.gpus
    ]
    if unknown:
        return nearest(unknown)._replace(reason=UnplacedReason.NEVER_FITS)
    return Answer(
        UnplacedReason.NEVER_FITS,
        "No node has a GPU of a known model. Ask an administrator to label a GPU node "
        f"{LABEL_PARTITIONING}=mig, mps or auto: its agent then reports the model.",
    )


def _not_offered(resource: str, models: Sequence[GpuModel], *, labelled: bool) -> str:
    """`labelled`: these models are on nodes for this kind of partition, so that one of their own can be requested."""
    add = "add a node that offers it" if labelled else "add a node that offers it, labelled for this kind of partition"
    if isinstance(kind_of(resource), MpsRequest):
        largest = max(models, key=largest_slice_gb)
        size_gb = largest_slice_gb(largest)
        if not size_gb:
            return (
                f"No GPU in this cluster offers {resource}: MPS slices need Volta or newer. Add a node with such a GPU."
            )
        return (
            f"No GPU in this cluster offers {resource}: "
            f"the largest slice {'is' if labelled else 'would be'} {mps_resource_gb(size_gb)} "
            f"({largest.product}). {'Request less' if labelled else sentence(add)}."
        )
    remedy = f"Request one of these, or {add}" if labelled and any(map(_capability, models)) else sentence(add)
    return f"No GPU in this cluster offers {resource}: {_listed_profiles(models)}. {remedy}."


def _without_placements(resource: str, models: Iterable[GpuModel]) -> Answer | None:
    """A model has the profile, but it is not known yet where its instances may lie."""
    kind = kind_of(resource)
    named = [
        model.product
        for model in models
        if isinstance(kind, MigRequest) and not model.confirmed and model.profile(kind.profile)
    ]
    if not named:
        return None
    return Answer(
        UnplacedReason.BLOCKED,
        f"The MIG placements of {listed(named)} are not known: the driver names them once MIG mode is on. "
        "If it is off, ask an administrator to turn it on. If it is on, request an MPS slice or a whole GPU.",
    )


def _listed_profiles(models: Iterable[GpuModel]) -> str:
    return "; ".join(f"{model.product} offers {_profiles(model)}" for model in models)


def _profiles(model: GpuModel) -> str:
    names = ", ".join(short_resource(spec.name) for spec in model.profiles if spec.max_instances and spec.starts)
    if model.geometries is not None:
        return f"{names or 'nothing'} (by {_FILE})"
    return names or "no MIG, but MPS slices"
