"""Keeps which claims of DRA drivers this kubelet has prepared, and shows them as the real one does.

Takes what a driver answered for a claim of an admitted pod; no driver and no API is called. The state file is the
kubelet's `dra_manager_state`, and is read again by the next kubelet: a claim whose driver is gone stays in it after its
pod. List shows a container's claims from Kubernetes 1.34 on; `listed` is False for an earlier one. A pod that the
kubelet has not admitted gets nothing.
"""

import json
import threading
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kube.kubelet_api import podresources_pb2 as api
from sandbox.kubelet.lifecycle import PodBook
from sandbox.kubelet.pods import Pod

Raw = dict[str, Any]
KIND = {"kind": "DRACheckpoint", "apiVersion": "checkpoint.dra.kubelet.k8s.io/v1"}


@dataclass(eq=False)
class PreparedClaims:
    path: Path
    book: PodBook
    listed: bool = True
    _claims: dict[tuple[str, str], Raw] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        if self.path.exists():
            content = json.loads(self.path.read_text(encoding="utf-8"))
            if content["Checksum"] == zlib.crc32(content["Data"].encode()):
                found = json.loads(content["Data"])["ClaimInfoStateList"]
                self._claims = {(claim["Namespace"], claim["ClaimName"]): claim for claim in found}

    def prepare(self, pod_uid: str, claim: str, devices: Mapping[str, Sequence[str]]) -> None:
        """`devices` by driver; a driver without any has not prepared its part yet."""
        entry = self.book.get(pod_uid)
        if entry is None or not entry.active or claim not in entry.pod.claims.values():
            raise LookupError(f"no admitted pod {pod_uid} has the claim {claim}")
        state = {driver: {"Devices": [_device(name) for name in names] or None} for driver, names in devices.items()}
        with self._lock:
            key = (entry.pod.namespace, claim)
            known = self._claims.setdefault(
                key, {"ClaimUID": f"uid-of-{claim}", "ClaimName": claim, "Namespace": key[0], "PodUIDs": {}}
            )
            known["PodUIDs"][pod_uid] = {}
            known["DriverState"] = state
            self._save()

    def unprepare(self, pod_uid: str) -> None:
        """As its pod has ended, where the drivers are there to be called."""
        with self._lock:
            for claim in self._claims.values():
                claim["PodUIDs"].pop(pod_uid, None)
            self._claims = {key: claim for key, claim in self._claims.items() if claim["PodUIDs"]}
            self._save()

    def of_container(self, pod: Pod, names: Sequence[str]) -> list[api.DynamicResource]:
        with self._lock:
            keys = [(pod.namespace, pod.claims[name]) for name in names if name in pod.claims]
            found = [
                self._claims[key] for key in keys if key in self._claims and pod.uid in self._claims[key]["PodUIDs"]
            ]
            return [_resource(claim) for claim in found] if self.listed else []

    def _save(self) -> None:
        data = json.dumps({**KIND, "ClaimInfoStateList": list(self._claims.values())}, separators=(",", ":"))
        self.path.write_text(json.dumps({"Data": data, "Checksum": zlib.crc32(data.encode())}), encoding="utf-8")


def _device(name: str) -> Raw:
    return {"PoolName": "pool", "DeviceName": name, "ShareID": None, "RequestNames": None, "CDIDeviceIDs": None}


def _resource(claim: Raw) -> api.DynamicResource:
    resources = [
        api.ClaimResource(driver_name=driver, pool_name=device["PoolName"], device_name=device["DeviceName"])
        for driver, state in claim["DriverState"].items()
        for device in state["Devices"] or ()
    ]
    return api.DynamicResource(
        claim_name=claim["ClaimName"], claim_namespace=claim["Namespace"], claim_resources=resources
    )
