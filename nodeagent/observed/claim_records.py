"""Reads which GPUs pods hold by claims of NVIDIA's DRA driver, from records on this node alone.

The kubelet and the driver write one each as a claim is prepared for a pod that the kubelet has admitted and for which
the claim is reserved; both stay when the driver goes. A claim that was only made, allocated or requested is in neither,
and no tenant can write them. A device becomes an id, `gpu.nvidia.com/<device>`, with the UUID where the
driver's record has it. Decides nothing.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from kube.kubelet_api import podresources_pb2 as messages
from nodeagent.hardware.gpu_ids import DRA_DRIVER

Claimed = tuple[str, tuple[str, ...]]
"""UID of a pod, and ids."""


def claim_id(device: str, uuid: str = "") -> str:
    return f"{DRA_DRIVER}/{device} {uuid}".rstrip()


def claimed_devices(resources: Iterable[messages.DynamicResource]) -> dict[str, tuple[str, ...]]:
    """As pod-resources has them from Kubernetes 1.34 on, like the ids of a resource."""
    found = (device for claim in resources for device in claim.claim_resources)
    ids = {claim_id(device.device_name) for device in found if device.driver_name == DRA_DRIVER}
    return {DRA_DRIVER: tuple(sorted(ids))} if ids else {}


def of_kubelet(content: Mapping[str, Any]) -> list[Claimed]:
    """Its file dra_manager_state, from Kubernetes 1.31 on. A claim without devices is not prepared yet."""
    claims = json.loads(content["Data"])["ClaimInfoStateList"] if "Data" in content else content["entries"]
    return [
        (str(uid), (claim_id(device["DeviceName"]),))
        for claim in claims or ()
        for uid in claim["PodUIDs"] or ()
        for device in ((claim.get("DriverState") or {}).get(DRA_DRIVER) or {}).get("Devices") or ()
    ]


def of_driver(content: Mapping[str, Any]) -> list[Claimed]:
    """Its file checkpoint.json, in all versions that it has there."""
    versions = [found for key in ("v1", "v2") if (found := content.get(key))]
    return [
        (str(pod["uid"]), (claim_id(device, uuid),))
        for version in versions
        for claim in (version.get("preparedClaims") or {}).values()
        for pod in (claim.get("status") or {}).get("reservedFor") or ()
        for device, uuid in sorted(_prepared(claim).items())
    ]


def _prepared(claim: Mapping[str, Any]) -> dict[str, str]:
    """UUID by device; empty while the driver is still about to prepare it."""
    results = ((claim["status"].get("allocation") or {}).get("devices") or {}).get("results") or ()
    found = {result["device"]: "" for result in results if result["driver"] == DRA_DRIVER}
    groups = claim.get("preparedDevices") or ()
    for kinds in (kinds for group in groups for kinds in group["devices"]):
        for device in filter(None, kinds.values()):
            named = device.get("concrete") or device.get("info") or {}
            found[device["device"]["DeviceName"]] = named.get("migUUID") or named.get("uuid") or ""
    return found
