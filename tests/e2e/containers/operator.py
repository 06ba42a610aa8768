"""Stand-ins for the parts of the GPU Operator that node labels switch: DaemonSets of its names, labels, selectors.

Facts: the operator's assets (state-device-plugin, state-mig-manager, state-operator-validation) and its labels
`nvidia.com/gpu.deploy.*`, version 26.7. The containers only wait. What reads these objects is the real DaemonSet
controller and gpuplan.
"""

from typing import Any

NAMESPACE = "gpu-operator"
PARTS = {
    "nvidia-device-plugin-daemonset": "nvidia.com/gpu.deploy.device-plugin",
    "nvidia-mig-manager": "nvidia.com/gpu.deploy.mig-manager",
    "nvidia-operator-validator": "nvidia.com/gpu.deploy.operator-validator",
}


def labels() -> dict[str, str]:
    """What the operator sets on a node with GPUs."""
    return dict.fromkeys(PARTS.values(), "true")


def objects(image: str, command: list[str]) -> list[dict[str, Any]]:
    """The namespace and one DaemonSet for each part."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    return [namespace, *(_daemon_set(name, key, image, command) for name, key in PARTS.items())]


def _daemon_set(name: str, key: str, image: str, command: list[str]) -> dict[str, Any]:
    container: dict[str, Any] = {"name": name, "image": image, "imagePullPolicy": "Never", "command": command}
    volumes = []
    if name == "nvidia-device-plugin-daemonset":
        container["volumeMounts"] = [{"name": "device-plugin", "mountPath": "/var/lib/kubelet/device-plugins"}]
        volumes = [{"name": "device-plugin", "hostPath": {"path": "/var/lib/kubelet/device-plugins"}}]
    if name == "nvidia-mig-manager":
        volumes = [{"name": "host-sys", "hostPath": {"path": "/sys"}}]
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {
                    "nodeSelector": {key: "true"},
                    "terminationGracePeriodSeconds": 1,
                    "tolerations": [{"operator": "Exists"}],
                    "containers": [container],
                    "volumes": volumes,
                },
            },
        },
    }
