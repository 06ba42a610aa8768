"""The programs of a real control plane: found among given assets, in the cache, or built once with Go.

Takes a Kubernetes version and places; returns paths that exist, or what is missing and how to get it. The Go modules
under `pins/` only pin versions (go.sum holds the checksums); sources come from the Go module proxy, binaries lie
outside the repository in a folder named by version and pins. It never takes a binary of another version.
"""

import contextlib
import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from sandbox.kubelet.node_status import VERSION
from tests.e2e.rig.controlplane.gobuild import GoBuild, Missing

PINS = Path(__file__).parent / "pins"
CURRENT = VERSION.removeprefix("v")
OLDEST = "1.30.14"
ETCD = "3.7.3"
HELM = "4.3.1"
SERVERS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
VERSION_SECONDS = 60.0
VERSION_PACKAGES = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
WITH_CGO = ("mig-parted-v", "nvidia-container-toolkit-v", "k8s-device-plugin-v", "dra-driver-nvidia-gpu-v")
"""They load NVIDIA's management library, which has some of their symbols and not all."""
LAZY = "-extldflags=-Wl,-z,lazy"
Report = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where programs may lie, and the environment that `go` runs in."""

    cache: Path
    assets: Path | None = None
    environ: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, environ: Mapping[str, str], home: Path) -> "Places":
        """KUBEBUILDER_ASSETS and XDG_CACHE_HOME mean what they mean elsewhere."""
        base = Path(environ.get("XDG_CACHE_HOME") or home / ".cache")
        assets = environ.get("KUBEBUILDER_ASSETS")
        return cls(
            cache=base / "gpuplan", assets=Path(assets) if assets else None, environ=tuple(sorted(environ.items()))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Binaries:
    """Programs of one Kubernetes version, and etcd."""

    kubernetes: str
    programs: Mapping[str, Path]

    def __getitem__(self, program: str) -> Path:
        return self.programs[program]


def obtain(
    version: str | None,
    places: Places,
    *,
    report: Report = lambda _: None,
    programs: tuple[str, ...] = SERVERS,
) -> Binaries | Missing:
    """etcd and the named programs of a version, `1.37` or `1.37.2`; none means that of the assets, else the current."""
    if shutil.which("openssl", path=dict(places.environ).get("PATH")) is None:
        return Missing("there is no openssl on PATH; it makes the certificates of the control plane")
    given: dict[str, Path] = {}
    if places.assets is not None:
        given = _programs_in(places.assets, (*programs, "etcd"))
        there = version_of(given["kube-apiserver"]) if "kube-apiserver" in given else None
        if there is None:
            return Missing(f"KUBEBUILDER_ASSETS is {places.assets}, but no kube-apiserver runs there")
        if version is not None and not _means(version, there):
            return Missing(f"KUBEBUILDER_ASSETS holds Kubernetes {there}, and {version} was requested")
        version = there
    version = next((found for found in pinned() if version and _means(version, found)), version or CURRENT)
    found = dict(given)
    for module, names in ((f"kubernetes-v{version}", programs), (f"etcd-v{ETCD}", ("etcd",))):
        lacking = tuple(name for name in names if name not in given)
        if lacking:
            folder = go_programs(module, places, report)
            if isinstance(folder, Missing):
                return Missing(f"{', '.join(lacking)}: {folder.message}", broken=folder.broken)
            found |= _programs_in(folder, lacking)
    return Binaries(kubernetes=version, programs=dict(sorted(found.items())))


def helm(places: Places, *, report: Report = lambda _: None) -> Path | Missing:
    """The program `helm`, built where it is not cached yet."""
    folder = go_programs(f"helm-v{HELM}", places, report)
    return folder if isinstance(folder, Missing) else folder / "helm"


def version_of(program: Path) -> str | None:
    """What `--version` prints, without the v; None where it does not run."""
    try:
        answer = subprocess.run(
            [program, "--version"], capture_output=True, text=True, timeout=VERSION_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r"v?(\d+\.\d+\.\d+\S*)", answer.stdout)
    return match.group(1) if answer.returncode == 0 and match else None


def pinned() -> tuple[str, ...]:
    """Kubernetes versions that can be built."""
    return tuple(sorted(path.name.removeprefix("kubernetes-v") for path in PINS.glob("kubernetes-v*")))


def _means(requested: str, version: str) -> bool:
    """The patch version may be left out, for one of each minor version is pinned."""
    return requested in (version, version.rpartition(".")[0])


def _programs_in(folder: Path, names: tuple[str, ...]) -> dict[str, Path]:
    return {name: folder / name for name in names if os.access(folder / name, os.X_OK)}


def go_programs(module: str, places: Places, report: Report = lambda _: None) -> Path | Missing:
    """The folder with the programs that the module of this name below `pins/` lists as tools; built once."""
    pins = PINS / module
    if not pins.is_dir():
        return Missing(f"{module} is not pinned here; there are {', '.join(pinned())}")
    target = _target(module, places)
    if target.is_dir():
        return target
    go = shutil.which("go", path=dict(places.environ).get("PATH"))
    if go is None:
        return Missing(
            "not built yet, and there is no go on PATH. Install Go 1.26 or newer (https://go.dev/dl/) and run again: "
            "it is built once, in about five minutes, from the Go module proxy. Or point KUBEBUILDER_ASSETS at a "
            "folder with etcd, kube-apiserver, kube-controller-manager and kube-scheduler"
        )
    try:
        places.cache.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return Missing(f"{places.cache} cannot be made ({error.strerror}); XDG_CACHE_HOME names another place")
    with _alone(places.cache / f"{module}.lock"):
        if target.is_dir():  # another process was building it
            return target
        report(f"building {module} with Go, once, which takes minutes; later runs take it from {target}")
        return _build(go, pins, target, places)


def _target(module: str, places: Places) -> Path:
    return places.cache / f"{module}-{_digest(PINS / module)}"


def _digest(pins: Path) -> str:
    """Changes with whatever makes another binary."""
    parts = [platform.system(), platform.machine(), " ".join(_link_flags(pins.name))]
    parts += [path.read_text() for path in sorted(pins.rglob("*")) if path.is_file()]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


def _link_flags(module: str) -> list[str]:
    flags = ["-s", "-w"]
    if module.startswith(WITH_CGO):
        flags.append(LAZY)
    containerd = re.fullmatch(r"containerd-v(.*)", module)
    if containerd:
        flags.append(f"-X github.com/containerd/containerd/v2/version.Version={containerd.group(1)}")
    version = re.fullmatch(r"kubernetes-v((\d+)\.(\d+)\.\d+)", module)
    if version:
        full, major, minor = version.groups()
        stamps = {"gitVersion": f"v{full}", "gitMajor": major, "gitMinor": minor, "gitTreeState": "archive"}
        for package in VERSION_PACKAGES:
            flags += [f"-X {package}.{name}={value}" for name, value in stamps.items()]
    return flags


def _build(go: str, pins: Path, target: Path, places: Places) -> Path | Missing:
    environ = dict(places.environ)
    own_cache = places.cache / f"{pins.name}.go-build"
    environ["GOCACHE"] = environ.get("GOCACHE") or str(own_cache)
    with tempfile.TemporaryDirectory(prefix=f".{pins.name}-", dir=places.cache) as scratch:
        out = Path(scratch) / "bin"
        out.mkdir()
        log = places.cache / f"{pins.name}.log"
        build = GoBuild(
            name=pins.name, go=go, sources=pins, environ=environ, log=log, cgo=pins.name.startswith(WITH_CGO)
        )
        failed = build.make(f"{out}/", "tool", _link_flags(pins.name))  # all at once, for they share packages
        if failed:
            return failed
        if (out / "server").exists():  # Go names a program after its package; this one is etcd
            (out / "server").rename(out / "etcd")
        for older in places.cache.glob(f"{pins.name}-*"):
            shutil.rmtree(older)
        out.rename(target)
    shutil.rmtree(own_cache, ignore_errors=True)  # some GB, of no use any more
    return target


@contextlib.contextmanager
def _alone(lock: Path) -> Iterator[None]:
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
