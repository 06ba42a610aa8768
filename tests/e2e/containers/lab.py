"""The cluster of `make e2e-node`: control plane, one node with containers, gpuplan installed in it, and its pods.

Takes what `prepare` returned and a folder. gpuplan's image has the simulated driver below the agent and is otherwise
what a release holds; manifests, arguments, accounts and rights are those that ship.
"""

import contextlib
import shutil
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from crds.v1alpha1 import names
from deploy.generate.manifests import CHART
from kube import apply
from sandbox.driver import machine
from tests.builders import objects
from tests.builders.models import H100
from tests.e2e.chart_release import NAME, Release
from tests.e2e.containers import simulated
from tests.e2e.real_cluster import NODES, PLANS, ROOT, RealCluster
from tests.e2e.rig.containers import images
from tests.e2e.rig.containers.node import NODE, PAUSE, SERVICE_PORT, ContainerNode, for_containers, ready
from tests.e2e.rig.containers.prepare import Prepared, product_layer
from tests.e2e.rig.controlplane import RealControlPlane, audit
from tests.e2e.rig.controlplane.granted import Right, granted, used
from tests.waiting import eventually

PRODUCT_IMAGE = "registry.test/gpuplan:1"
VALUES = {"image": {"repository": "registry.test/gpuplan", "tag": "1", "pullPolicy": "Never"}}
SHELL_IMAGE = "registry.test/shell:1"
PODS = "/api/v1/namespaces/default/pods"
WAIT = ["/bin/sh", "-c", 'trap "exit 0" TERM INT; while :; do sleep 86400 & wait; done']
START_SECONDS = 180.0
# The agent shares the node's process ids, so that it reaches the node's files below the root of process 1: there lies
# the simulated machine. Nothing else of the image differs from what ships.
ON_SIMULATED_GPUS = f"""\
#!/bin/sh
exec python3 -m sandbox.driver.run /proc/1/root{simulated.MACHINE} -m nodeagent "$@"
"""


class Lab:
    """Start with `start`, end with `close`."""

    def __init__(self, prepared: Prepared, folder: Path) -> None:
        self._prepared, self._folder = prepared, folder
        self.device_plugin, self.dra_driver = prepared.device_plugin, prepared.dra_driver
        self.bash = prepared.programs.bash
        self.release_folder = prepared.release
        plane = folder / "plane"
        extra = for_containers(plane, *audit.flags(folder))
        self.plane = RealControlPlane(prepared.kubernetes, directory=plane, extra=extra, api_port=SERVICE_PORT)
        self.granted: dict[Right, str] = {}
        """Every right that gpuplan's accounts have had, with the template that grants it."""
        self.removals: list[audit.Period] = []
        """When rights were taken from programs that had not ended yet."""

    def start(self) -> None:
        """Return when the node is Ready and gpuplan's pods are."""
        clients = self._folder / "clients"
        clients.mkdir()
        self.plane.start()
        self.cluster = RealCluster(self.plane, clients)
        self.node = ContainerNode(
            self._folder / "node", self._prepared.programs, self._prepared.kubernetes["kubelet"], self.plane
        )
        self.node.start()
        for archive in self._images(self._folder / "images"):
            self.node.load(archive)
        simulated.start(gpus(), seed=NODE)
        eventually(lambda: ready(self.cluster.admin), "the node is Ready", START_SECONDS)

    def close(self) -> None:
        """End every process that was started here."""
        if hasattr(self, "node"):
            self.node.close()
        self.plane.stop()

    def install(self) -> None:
        """As deploy/README.md says, with the image of this checkout; once."""
        if hasattr(self, "release"):
            return
        self.kubectl("create", "namespace", names.NAMESPACE)
        self.kubectl("label", "namespace", names.NAMESPACE, "pod-security.kubernetes.io/enforce=privileged")
        self.release = Release(self.cluster, self._prepared.helm, self._folder / "clients")
        self.release.install(VALUES)
        self.granted.update(granted(self.release.templates()))

    def upgrade(self, values: Mapping[str, Any]) -> None:
        """The same with other values."""
        self.release.helm("upgrade", NAME, str(CHART), values={**VALUES, **values})
        self.granted.update(granted(self.release.templates()))

    def remove(self) -> None:
        """Take the release off, and wait until its programs have ended."""
        began = datetime.now(UTC)
        self.release.helm("uninstall", NAME, "--wait")
        eventually(lambda: not self._pods(), "gpuplan's programs have ended", START_SECONDS, seen=self._pods)
        self.removals.append((began, datetime.now(UTC)))

    def rights_used(self) -> set[Right]:
        """What gpuplan's accounts were allowed to do until now."""
        return used(audit.audited(self._folder / audit.LOG))

    def forbidden(self) -> list[str]:
        """What they were refused, while they had their rights."""
        return audit.forbidden(self._folder / audit.LOG, self.removals)

    def _pods(self) -> list[str]:
        return self.kubectl("-n", names.NAMESPACE, "get", "pods", "-o", "name").split()

    def label(self, **labels: str | None) -> None:
        """Set or remove (None) gpuplan's labels of the node: gpu_partitioning is gpuplan.dev/gpu-partitioning."""
        found = {f"{names.GROUP}/{name.replace('_', '-')}": value for name, value in labels.items()}
        apply.merge_patch(self.cluster.admin, f"{NODES}/{NODE}", {"metadata": {"labels": found}})

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """What kubectl printed; AssertionError where it failed."""
        return self.cluster.kubectl(*arguments, stdin=stdin, check=True)

    def plan(self) -> dict[str, Any]:
        """The node's plan."""
        return apply.get(self.cluster.admin, f"{PLANS}/{NODE}")

    def condition(self, kind: str) -> str:
        """True, False or Unknown; empty where the plan has no such condition."""
        conditions = self.plan().get("status", {}).get("conditions", [])
        return next((str(one["status"]) for one in conditions if one["type"] == kind), "")

    def message_of(self, kind: str, status: str) -> str:
        """The message of a condition that has this status; empty before it has."""
        plans = apply.get(self.cluster.admin, PLANS)["items"]
        found = [one for plan in plans for one in plan.get("status", {}).get("conditions", [])]
        return next((str(one["message"]) for one in found if one["type"] == kind and one["status"] == status), "")

    def used(self, resource: str) -> int:
        """How many partitions of a resource the plan's status reports in use."""
        gpus = self.plan().get("status", {}).get("gpus", [])
        return sum(
            one["resource"] == resource and one["state"] == "Used" for gpu in gpus for one in gpu.get("partitions", [])
        )

    def allocatable(self, resource: str) -> int:
        """What the kubelet reports of a resource."""
        node = apply.get(self.cluster.admin, f"{NODES}/{NODE}")
        return int(node["status"]["allocatable"].get(resource, 0))

    def wait_running(self, pod: str) -> None:
        """Until every container of a pod of namespace default runs."""
        eventually(lambda: self.container_ids(pod), f"pod {pod} runs", START_SECONDS, seen=self.report)

    def container_ids(self, pod: str) -> tuple[str, ...]:
        """Of its running containers; a container that was started again has another."""
        statuses = apply.get(self.cluster.admin, f"{PODS}/{pod}").get("status", {}).get("containerStatuses", [])
        return tuple(one["containerID"] for one in statuses if "running" in one["state"])

    def wait_ready(self, program: str) -> None:
        """Until each pod of a Deployment or DaemonSet is Ready."""
        label = f"app.kubernetes.io/name={program.partition('/')[2]}"
        wait = ("wait", "--for=condition=Ready", "pod", "-l", label, "--timeout=100s")
        eventually(lambda: "condition met" in self.cluster.kubectl("-n", names.NAMESPACE, *wait), f"{program} is ready")

    def pods_of(self, program: str) -> set[str]:
        """Names of the pods of a Deployment or DaemonSet."""
        label = f"app.kubernetes.io/name={program.partition('/')[2]}"
        return set(self.kubectl("-n", names.NAMESPACE, "get", "pods", "-l", label, "-o", "name").split())

    def are_ready(self, *programs: str) -> bool:
        """Whether the newest version of each Deployment or DaemonSet runs, and no older one."""
        status = ("-n", names.NAMESPACE, "rollout", "status", "--watch=false")
        return all("successfully rolled out" in self.cluster.kubectl(*status, program) for program in programs)

    def instances(self) -> list[tuple[int, str, int]]:
        """GPU, profile and first memory slice of each GPU instance of the simulated machine."""
        return [
            (number, instance["profile"], instance["start"])
            for number, gpu in enumerate(machine.observe(simulated.MACHINE)["gpus"])
            for instance in gpu["gpu_instances"]
        ]

    def left_on_the_node(self) -> list[str]:
        """Folders that gpuplan made on the node."""
        return sorted(
            str(path) for parent in ("/var/lib", "/run") for path in Path(parent).glob("gpuplan*") if path.is_dir()
        )

    def mps_daemons(self) -> set[int]:
        """Processes of NVIDIA's MPS control daemons on the node."""
        found = set()
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it may end at any moment
                words = (process / "cmdline").read_bytes().split(b"\0")
                if words[0].endswith(b"nvidia-cuda-mps-control") and b"-d" in words:
                    found.add(int(process.name))
        return found

    def mps_supervisors(self) -> set[int]:
        """Processes of our supervisor of them; the shell that starts it is none."""
        found = set()
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                text = (process / "cmdline").read_bytes()
                if b"--mps-root" in text and b"--kubelet-dir" not in text and b"while :" not in text:
                    found.add(int(process.name))
        return found

    def replace(self, program: str) -> None:
        """Delete the pods of a program; its Deployment or DaemonSet makes others."""
        label = f"app.kubernetes.io/name={program.partition('/')[2]}"
        self.kubectl("-n", names.NAMESPACE, "delete", "pods", "-l", label, "--wait=true")

    def report(self) -> str:
        """Everything that a person would look at, for the message of a failed test."""
        commands = (
            "get pods -A -o wide",
            "get gpupartitionplans",
            f"describe gpupartitionplan {NODE}",
            "get events -A",
        )
        found = [self.cluster.kubectl(*command.split()) for command in commands]
        for name in ("controller", "agent", "device-plugin", "mps"):
            selector = f"app.kubernetes.io/name=gpuplan-{name}"
            found.append(self.cluster.kubectl("-n", names.NAMESPACE, "logs", "-l", selector, "--tail=30", "--prefix"))
        return "\n".join(found)

    def load_image(self, name: str, root: Path) -> None:
        """Make an image of the shell and what lies below a folder known to the kubelet."""
        layers = [self._prepared.shell, images.layer(root, root.with_suffix(".layer"))]
        environment = {"LD_LIBRARY_PATH": "/usr/lib"}
        self.node.load(images.archive(name, layers, root.with_suffix(".image"), environment=environment))

    def _images(self, folder: Path) -> list[Path]:
        folder.mkdir()
        found = self._prepared
        product = product_layer(folder / "product.tar")
        simulated = images.layer(_simulated_root(folder / "simulated"), folder / "simulated.tar")
        python = {
            **images.linker_environment(),
            "PYTHONPATH": "/opt/gpuplan/lib",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUNBUFFERED": "1",
            "PYTHONSAFEPATH": "1",
        }
        mps = images.layer(_mps_root(folder / "mps", found.programs.mps), folder / "mps.tar")
        return [
            images.archive(PAUSE, [found.shell], folder / "pause-image.tar", entrypoint=WAIT),
            images.archive(
                SHELL_IMAGE, [found.shell], folder / "shell-image.tar", environment={"NVIDIA_VISIBLE_DEVICES": "all"}
            ),
            images.archive(
                PRODUCT_IMAGE,
                [found.shell, found.python, found.dependencies, product, mps, simulated],
                folder / "product-image.tar",
                environment=python,
            ),
        ]


def shell_pod(name: str, resource: str, command: list[str]) -> dict[str, Any]:
    """One that runs a command in the shell's image."""
    main = objects.container(limits={resource: "1"}, image=SHELL_IMAGE, imagePullPolicy="Never", command=command)
    return objects.manifest(objects.pod(name, containers=[main], terminationGracePeriodSeconds=1), status=False)


def gpus() -> list[Any]:
    """GPU 0 and 1 with MIG, 2 and 3 without."""
    return [(H100, {"mig_enabled": mig}) for mig in (True, True, False, False)]


def _mps_root(root: Path, control: Path) -> Path:
    """NVIDIA's own control daemon, which runs without a GPU until a client comes."""
    server = control.parents[1] / "sbin/nvidia-cuda-mps-server"
    (root / "usr/bin").mkdir(parents=True)
    for program in (control, server):
        shutil.copy2(program, root / "usr/bin" / program.name)
    images.linked({root / "usr/bin" / control.name}, root)
    return root


def _simulated_root(root: Path) -> Path:
    library = root / "opt/gpuplan/lib"
    library.mkdir(parents=True)
    shutil.copytree(ROOT / "sandbox", library / "sandbox", ignore=shutil.ignore_patterns("__pycache__"))
    program = root / "opt/gpuplan/bin/gpuplan-nodeagent"
    program.parent.mkdir()
    program.write_text(ON_SIMULATED_GPUS)
    program.chmod(0o755)
    return root
