"""Runs `gpuplan import` and `gpuplan export`: configs of NVIDIA's device plugin to plans, and back.

`import` takes ConfigMaps and Nodes, chooses the config of each node as NVIDIA's config-manager does, and prints plans
that pin the same sharing. `export` takes plans and prints a ConfigMap. Notes go to stderr: what changes for pods, and
what has no equal in the other form, by node. Never writes to a cluster.
"""

import argparse
import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import yaml

from cli import nvidia_config
from cli.examples import add_command, add_files
from cli.hardware import MAX_GPUS, has_gpus
from cli.manifests import load_cluster
from crds.v1alpha1.gpu_labels import counts_mig_devices
from crds.v1alpha1.names import KIND, LABEL_COMPUTE_MAJOR, LABEL_COUNT, LABEL_PRODUCT
from crds.v1alpha1.nvidia_backend import node_config
from crds.v1alpha1.plan import plan_body
from crds.v1alpha1.spec import PlanSpec
from kube.yaml_text import read_yaml
from partitioning.models import model_for_product
from partitioning.mps import check_replicas
from partitioning.nvidia_plugin import CONFIG_LABEL, NodeConfig
from partitioning.resources import SHARED, WHOLE

Json = dict[str, Any]
Texts = dict[str, list[tuple[str, str]]]
"""Of each key where it is, as namespace/name, and its text."""
CONFIG_MAP = "gpuplan-device-plugin-configs"


class NoEqualError(ValueError):
    """A node's config, or a plan, has no equal in the other form."""


def add_convert(commands: Any) -> None:
    """Declare `import` and `export`."""
    imports = add_command(
        commands,
        "import",
        "turn configs of NVIDIA's device plugin, or of nebuly's, into plans; write nothing to a cluster",
        examples=("kubectl get configmaps,nodes -A -o yaml | gpuplan import -f - > plans.yaml",),
    )
    add_files(imports, "manifests or dumps of ConfigMaps and Nodes")
    imports.add_argument(
        "--key",
        default="",
        help=f"the config of nodes without the label {CONFIG_LABEL} (default: `default`, or the only one)",
    )
    imports.add_argument(
        "--config-map",
        default="",
        metavar="NAMESPACE/NAME",
        help="the ConfigMap that the device plugin mounts (default: any that has the key)",
    )
    imports.set_defaults(run=_import)
    exports = add_command(
        commands,
        "export",
        "turn plans into a ConfigMap for NVIDIA's device plugin; write nothing to a cluster",
        examples=("kubectl get gpp -o yaml | gpuplan export -f - > configs.yaml",),
    )
    add_files(exports, "manifests or dumps of GPUPartitionPlans")
    exports.set_defaults(run=_export)


def _import(arguments: argparse.Namespace) -> int:
    objects = load_cluster(arguments.filename, ("ConfigMap", "Node")).objects
    nodes = [found for found in objects if found["kind"] == "Node" and has_gpus(found)]
    config_maps = [
        found for found in objects if found["kind"] == "ConfigMap" and arguments.config_map in ("", _place(found))
    ]
    wanted = {_labels(node).get(CONFIG_LABEL) or arguments.key or "default" for node in nodes}
    # Strangers' ConfigMaps are read only where no config has the name: it is the only one, or is not there.
    configs = _configs(config_maps, wanted, named=bool(arguments.config_map))
    if wanted - configs.keys():
        configs = {**_configs(config_maps, None), **configs}
    if not nodes:
        _note(f"no Node with the label {LABEL_COUNT}, or with capacity of {WHOLE}, is in the input")
        return 1
    return _each(nodes, lambda node: _plan(node, *_config_of(node, configs, config_maps, arguments)))


def _export(arguments: argparse.Namespace) -> int:
    plans = load_cluster(arguments.filename, (KIND,)).objects
    texts: dict[str, str] = {}

    def add(plan: Json) -> None:
        name, config = plan["metadata"]["name"], config_of(plan["spec"])
        texts[config.key] = config.text
        _note(f"{name}: kubectl label node {name} {CONFIG_LABEL}={config.key}")

    code = _each(plans, add)
    if texts:
        metadata = {"name": CONFIG_MAP, "namespace": "gpu-operator"}
        _print({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": dict(sorted(texts.items()))})
    return code


def _each(objects: Iterable[Json], convert: Callable[[Json], Json | None]) -> int:
    """1 where one could not be converted; the others are."""
    code = 0
    for one in sorted(objects, key=lambda found: str(found["metadata"]["name"])):
        try:
            made = convert(one)
        except NoEqualError as problem:
            _note(f"{one['metadata']['name']}: {problem}")
            code = 1
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            _note(f"{one['metadata']['name']}: a field has not the form that the API gives it: {error!r}")
            code = 1
        else:
            if made is not None:
                _print(made)
    return code


def _configs(config_maps: Iterable[Json], keys: Collection[str] | None, *, named: bool = False) -> Texts:
    """Those of these keys (None: any key) that are configs of a device plugin; all of a ConfigMap that is `named`."""
    found: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
    for config_map in config_maps:
        place = _place(config_map)
        data = config_map.get("data")
        for key, text in data.items() if isinstance(data, dict) else ():
            if not (keys is None or key in keys) or not isinstance(text, str):
                continue
            document = read_yaml(text, largest=nvidia_config.LARGEST)
            if named or nvidia_config.looks_like_one(document, text if keys is not None else ""):
                found[key].append((place, text))
            elif keys is None and (what := nvidia_config.what_it_is(document, text)):
                _note(f"{place} {key}: {what}")
    return dict(found)


def _config_of(
    node: Json, configs: Texts, config_maps: Iterable[Json], given: argparse.Namespace
) -> tuple[str, nvidia_config.PluginSharing]:
    key = _labels(node).get(CONFIG_LABEL) or given.key or ("default" if "default" in configs else "")
    if not key and len(configs) == 1:
        key = next(iter(configs))
    holders = [_place(one) for one in config_maps if key not in configs and key in (one.get("data") or ())]
    for place in holders[:1]:
        raise NoEqualError(f"{place} {key}: {nvidia_config.NOT_ONE}; if it mounts it, give --config-map {place}")
    if not configs:
        which = given.config_map or "that holds it"
        raise NoEqualError(f"the input has no config of NVIDIA's device plugin for it: give the ConfigMap {which}")
    if key not in configs:
        what = f"no ConfigMap in the input has its config {key!r}: known" if key else "its config is not known: there"
        raise NoEqualError(f"{what} are {', '.join(sorted(configs))}; choose one with --key")
    places = [place for place, _ in configs[key]]
    if len(places) > 1:
        raise NoEqualError(
            f"config {key!r} is in {' and in '.join(places)}: name the one that the plugin mounts with --config-map"
        )
    found = nvidia_config.read(configs[key][0][1])
    if isinstance(found, tuple):
        raise NoEqualError("; ".join(f"{places[0]} {key}: {problem}" for problem in found))
    for remark in found.remarks:
        _note(f"{places[0]} {key}: {remark}")
    return key, found


def _plan(node: Json, key: str, found: nvidia_config.PluginSharing) -> Json | None:
    name = node["metadata"]["name"]
    sharing = found.mps or found.time_slicing
    if sharing is None:
        _note(f"{name}: config {key!r} shares nothing, so no plan is needed")
        return None
    several = sharing.fail_requests_greater_than_one
    # To refuse several is the default of plans, and of the plugin for MPS alone.
    items = _items(node, sharing, several if found.mps else bool(several))
    if found.time_slicing:
        _note(f"{name}: time-slicing becomes equal MPS replicas, whose memory and threads are limited")
    return plan_body({"name": name}, spec={"nodeName": name, "gpus": items})


def _items(node: Json, sharing: nvidia_config.Sharing, refuse_several: bool | None) -> list[Json]:
    labels = _labels(node)
    shared = [one for one in sharing.resources if one.name == WHOLE]  # others match nothing on a node without MIG
    if not shared:
        others = sorted({one.name for one in sharing.resources})
        raise NoEqualError(f"sharing of {', '.join(others)} has no equal: plans share {WHOLE}, and no MIG instances")
    if any(one.memory_gb is not None for one in shared):
        return _sized_items(_gpus(node, ""), shared)
    # The plugin unites the ids of two entries with one name: the larger one counts.
    replicas = max(one.replicas for one in shared)
    model = model_for_product(labels.get(LABEL_PRODUCT, ""))
    problem = check_replicas(model.compute_capability, replicas) if model is not None else None
    if problem is not None:
        raise NoEqualError(problem)
    if labels.get(LABEL_COMPUTE_MAJOR) in ("3", "5", "6"):
        _note(f"{node['metadata']['name']}: before Volta the agent makes replicas only with mpsReplicasBeforeVolta")
    mps: Json = {"replicas": replicas, "renameByDefault": sharing.rename_by_default}
    if refuse_several is not None:
        mps["failRequestsGreaterThanOne"] = refuse_several
    name = SHARED if sharing.rename_by_default else WHOLE
    return [{"index": index, "mps": dict(mps)} for index in range(_gpus(node, name, replicas))]


def _gpus(node: Json, name: str, replicas: int = 1) -> int:
    """How many GPUs it has: by its label, else by what the plugin advertises of this name with so many replicas."""
    labels, capacity = _labels(node), (node.get("status") or {}).get("capacity") or {}
    if counts_mig_devices(labels):
        raise NoEqualError(
            f"{LABEL_PRODUCT}={labels[LABEL_PRODUCT]}: its labels count MIG instances, which nothing shares"
        )
    given = {**labels, **capacity}
    if any(one.startswith(f"{nvidia_config.VENDOR}mig-") and amount != "0" for one, amount in given.items()):
        raise NoEqualError("some of its GPUs are cut into MIG instances, and which ones is not known: write its plan")
    text = labels.get(LABEL_COUNT)
    if text is None:
        text = f"{int(capacity[name]) / replicas:g}" if name in capacity else ""
        if not text.isdecimal():
            raise NoEqualError(f"its number of GPUs is not known: label it {LABEL_COUNT}=NUMBER")
    if not text.isdecimal() or not 1 <= int(text) <= MAX_GPUS:
        raise NoEqualError(f"its label {LABEL_COUNT} is {text!r}, no number of GPUs from 1 to {MAX_GPUS}")
    return int(text)


def _place(config_map: Json) -> str:
    return f"{config_map['metadata'].get('namespace', 'default')}/{config_map['metadata']['name']}"


def _sized_items(count: int, resources: Iterable[nvidia_config.SharedResource]) -> list[Json]:
    """nebuly's entries: so many slices of a size on each device that is named."""
    slices: defaultdict[int, list[Json]] = defaultdict(list)
    for one in resources:
        if one.memory_gb is None:
            raise NoEqualError(f"{one.name} has no memoryGB, and other entries have: give it to each")
        named = one.devices if isinstance(one.devices, list) else range(count)
        for device in named:
            if not str(device).isdecimal() or int(device) >= count:
                raise NoEqualError(f"devices: {device!r} is no index of its {count} GPUs: write indices")
            if one.replicas:
                slices[int(device)].append({"memoryGB": one.memory_gb, "count": one.replicas})
    return [{"index": index, "mps": {"slices": found}} for index, found in sorted(slices.items())]


def config_of(spec: Mapping[str, Any]) -> NodeConfig:
    """The config for NVIDIA's plugin that shares a node as this plan does; NoEqualError where there is none."""
    found = node_config(PlanSpec.read(spec))
    if isinstance(found, str):
        raise NoEqualError(found)
    if found is None or not found.shared:
        raise NoEqualError("the plan shares no GPU: only equal MPS replicas can be exported")
    return found


def _labels(node: Json) -> Mapping[str, str]:
    return node["metadata"].get("labels") or {}


def _print(document: Json) -> None:
    print("---", yaml.safe_dump(document, sort_keys=False), sep="\n", end="")


def _note(text: str) -> None:
    print(f"gpuplan: {text}", file=sys.stderr)
