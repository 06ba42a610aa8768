"""Images without a registry: OCI archives that `ctr images import` takes.

Takes folders, one per layer, and writes one archive. The Python image holds the interpreter that runs the tests, with
the libraries that it is linked to, so that it runs what they run. Owner and time of every file are fixed: the same
files make the same image. Format: the OCI image layout specification.
"""

import hashlib
import io
import json
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

OCI = "application/vnd.oci.image"
SHELL_PATH = "/opt/gpuplan/bin:/usr/local/bin:/usr/bin:/bin"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
NOT_RUN = ("test", "idlelib", "tkinter", "turtledemo", "ensurepip", "lib2to3", "site-packages", "config-*", "*.a")
LINK_SECONDS = 30.0


def archive(
    name: str,
    layers: Sequence[Path],
    target: Path,
    *,
    environment: Mapping[str, str] | None = None,
    entrypoint: Sequence[str] = (),
) -> Path:
    """Write an archive of one image; `layers` are tar files, the lowest first."""
    digests = [_digest(layer) for layer in layers]
    blobs: dict[str, bytes] = {}
    config = _blob(blobs, _config(digests, {"PATH": SHELL_PATH, **(environment or {})}, entrypoint))
    manifest = _blob(blobs, _manifest(config, list(zip(layers, digests, strict=True))))
    described = {"platform": _platform(), "annotations": {"io.containerd.image.name": name}}
    index = {"schemaVersion": 2, "manifests": [{"mediaType": f"{OCI}.manifest.v1+json", **manifest, **described}]}
    with tarfile.open(target, "w") as tar:
        _add(tar, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
        _add(tar, "index.json", json.dumps(index).encode())
        for digest, content in blobs.items():
            _add(tar, f"blobs/sha256/{digest}", content)
        for digest, layer in zip(digests, layers, strict=True):
            tar.add(layer, arcname=f"blobs/sha256/{digest}")
    return target


def _platform() -> dict[str, str]:
    return {"architecture": ARCHITECTURES[platform.machine()], "os": "linux"}


def _config(digests: Sequence[str], environment: Mapping[str, str], entrypoint: Sequence[str]) -> dict[str, object]:
    variables = [f"{key}={value}" for key, value in environment.items()]
    return {
        **_platform(),
        "config": {"Env": variables, "Entrypoint": list(entrypoint) or None},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in digests]},
    }


def _manifest(config: Mapping[str, object], layers: Sequence[tuple[Path, str]]) -> dict[str, object]:
    return {
        "schemaVersion": 2,
        "mediaType": f"{OCI}.manifest.v1+json",
        "config": {"mediaType": f"{OCI}.config.v1+json", **config},
        "layers": [
            {"mediaType": f"{OCI}.layer.v1.tar", "digest": f"sha256:{digest}", "size": layer.stat().st_size}
            for layer, digest in layers
        ],
    }


def layer(root: Path, target: Path) -> Path:
    """A tar file of what lies below a folder."""
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as tar:
        for entry in sorted(root.iterdir()):
            tar.add(entry, arcname=entry.name, filter=_anonymous)
    return target


def shell_root(root: Path, busybox: Path) -> None:
    """A file system with busybox and its commands."""
    for name in ("bin", "etc", "tmp", "proc", "sys", "dev", "run", "var/lib"):
        (root / name).mkdir(parents=True)
    (root / "tmp").chmod(0o1777)
    shutil.copy2(busybox, root / "bin/busybox")
    listed = subprocess.run(
        [root / "bin/busybox", "--list"], capture_output=True, text=True, check=True, timeout=LINK_SECONDS
    )
    for command in listed.stdout.split():
        if command != "busybox":
            (root / "bin" / command).symlink_to("busybox")
    (root / "usr/bin").mkdir(parents=True)
    (root / "usr/bin/env").symlink_to("../../bin/busybox")  # scripts name it by this path
    (root / "etc/passwd").write_text("root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n")


def python_root(root: Path) -> None:
    """The interpreter of the tests below /usr, and the libraries that it and its modules are linked to."""
    prefix = Path(sys.base_prefix)
    program = root / "usr/bin/python3"
    program.parent.mkdir(parents=True)
    shutil.copy2(Path(sys.executable).resolve(), program)
    version = f"python{sysconfig.get_python_version()}"
    standard = root / "usr/lib" / version
    shutil.copytree(prefix / "lib" / version, standard, symlinks=True, ignore=shutil.ignore_patterns(*NOT_RUN))
    linked({program, *standard.glob("lib-dynload/*.so")}, root)


def linked(programs: set[Path], root: Path) -> None:
    """Copy what the dynamic linker loads for these programs to where it looks for it."""
    answer = subprocess.run(
        ["ldd", *sorted(programs)], capture_output=True, text=True, check=False, timeout=LINK_SECONDS
    )
    for line in answer.stdout.splitlines():
        words = line.split()
        found = words[2] if "=>" in words and len(words) > 2 else words[0] if words[0].startswith("/lib") else ""
        if not found.startswith("/"):
            continue
        # The loader has a path of its own; everything else is looked for in /usr/lib, which LD_LIBRARY_PATH names.
        to = root / found.lstrip("/") if "=>" not in words else root / "usr/lib" / words[0]
        to.parent.mkdir(parents=True, exist_ok=True)
        if not to.exists():
            shutil.copy2(Path(found).resolve(), to)


def cached(target: Path, fill: Callable[[Path], None]) -> Path:
    """A layer that stays the same: made once."""
    if not target.exists():
        with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
            root = Path(scratch) / "root"
            root.mkdir()
            fill(root)
            layer(root, Path(scratch) / "layer.tar").rename(target)
    return target


def _blob(blobs: dict[str, bytes], content: object) -> dict[str, object]:
    data = json.dumps(content).encode()
    digest = hashlib.sha256(data).hexdigest()
    blobs[digest] = data
    return {"digest": f"sha256:{digest}", "size": len(data)}


def _digest(path: Path) -> str:
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    tar.addfile(entry, io.BytesIO(content))


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    return entry


def linker_environment() -> dict[str, str]:
    """What the copied interpreter needs to find its libraries."""
    return {"LD_LIBRARY_PATH": "/usr/lib", "PYTHONHOME": "/usr", "LANG": os.environ.get("LANG", "C.UTF-8")}
