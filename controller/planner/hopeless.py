"""Why no GPU of the cluster could hold a request, even empty: nobody offers it, or nobody may, or nobody knows.

In go the stock of the nodes and the partitions of a request that no node's GPUs hold, out come the reason and one
sentence with names, numbers and the remedy. What is free, and what the scheduler says, does not matter here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from controller.demand import Wants, kind_of
from controller.planner.inventory import Closed, NodeStock
from controller.planner.offers import could_hold, gpu_models, largest_slice_gb, most_on_empty
from controller.planner.wording import listed, spelled
from controller.reasons import UnplacedReason
from partitioning.models import GpuModel
from partitioning.resources import MpsRequest

_FILE = "knownMigGeometriesFile"


def no_gpu(stocks: Sequence[NodeStock], wants: Wants) -> tuple[UnplacedReason, str]:
    models = _models(model for stock in stocks for model in gpu_models(stock))
    if not models:
        return _no_model(stocks)
    restricted = any(model.geometries is not None for model in models)
    if restricted and any(could_hold(stock, wants, allowed=False) for stock in stocks):
        return UnplacedReason.BLOCKED, _forbidden(stocks, models, wants)
    for resource, _ in wants:
        if not any(most_on_empty(model, resource) for model in models):
            return UnplacedReason.NEVER_FITS, f"no GPU here offers {resource}: {_offers(resource, models)}"
    most, resource = _scarcest(stocks, wants)
    return UnplacedReason.NEVER_FITS, (
        f"no node's GPUs hold {spelled(wants)} together (at most {most} x {resource}): ask for fewer"
    )


def _models(all_of: Iterable[GpuModel]) -> list[GpuModel]:
    """One of each, sorted; where a file restricts, that which has least: others keep what stands on them already."""
    least: dict[str, GpuModel] = {}
    for model in all_of:
        known = least.get(model.key)
        if known is None or (known is not model and _offered(model) < _offered(known)):
            least[model.key] = model
    return [least[key] for key in sorted(least)]


def _offered(model: GpuModel) -> int:
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
        offered = _listed_profiles([model for model in models if model.key in capable])
        return f"GPUs here could hold {resource}, but {offered}: allow it in {_FILE}, or ask for what is allowed"
    most, resource = _scarcest(stocks, wants)
    return (
        f"knownMigGeometries allow at most {most} x {resource} on one node, and the pod asks {spelled(wants)}: "
        f"allow more in {_FILE}, or ask for fewer"
    )


def _no_model(stocks: Sequence[NodeStock]) -> tuple[UnplacedReason, str]:
    """No GPU is of a model that NVML, as its agent reports it, or the catalogue knows."""
    fresh = [
        one.node.name for one in stocks if one.node.product and one.closed in (Closed.NO_PLAN, Closed.NOT_REPORTED)
    ]
    if fresh:
        return UnplacedReason.AWAITING_AGENT, f"GPUs not reported yet: {listed(fresh)}: see the node agent there"
    unknown = [f"GPU {gpu.view.index} of {one.node.name}" for one in stocks for gpu in one.gpus]
    if unknown:
        return UnplacedReason.NEVER_FITS, f"{listed(unknown)} {Closed.UNKNOWN_MODEL.value}"
    return UnplacedReason.NEVER_FITS, "no node has a GPU of a known model: label nodes with nvidia.com/gpu.product"


def _offers(resource: str, models: Sequence[GpuModel]) -> str:
    if isinstance(kind_of(resource), MpsRequest):
        largest = max(models, key=largest_slice_gb)
        size_gb = largest_slice_gb(largest)
        if not size_gb:
            return "MPS slices need a GPU of Volta or newer: add a node that has one"
        return f"the largest slice a GPU here can hold is gpu-{size_gb}gb ({largest.product}): ask for less"
    return f"{_listed_profiles(models)}: ask for one of these, or add a node that offers it"


def _listed_profiles(models: Iterable[GpuModel]) -> str:
    return "; ".join(f"{model.product} offers {_profiles(model)}" for model in models)


def _profiles(model: GpuModel) -> str:
    names = ", ".join(spec.name for spec in model.profiles if spec.max_instances)
    if model.geometries is not None:
        return f"{names or 'nothing'} (by knownMigGeometries)"
    return names or "no MIG, but MPS slices"
