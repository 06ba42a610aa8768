"""Programs from Debian's packages, unpacked into a folder of the cache: nothing is installed on the machine.

Takes package names and returns the folder that holds their files, or what is missing. `apt-get download` chooses the
newest version of the machine's own release and checks its signature. Packages of non-free are found with a copy of
the machine's sources, never with a change to them.
"""

import fcntl
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.e2e.rig.controlplane import Missing, Places
from tests.e2e.rig.controlplane.leashed import run

SECONDS = 300.0
SOURCES = Path("/etc/apt/sources.list.d/debian.sources")


def unpacked(name: str, packages: Sequence[str], places: Places) -> Path | Missing:
    """The cache's folder of that name, with these packages' files in it."""
    target = places.cache / name
    if target.is_dir():
        return target
    if shutil.which("apt-get") is None or not SOURCES.exists():
        return Missing(f"{', '.join(packages)} come from Debian's packages, and {SOURCES} or apt-get is not here")
    places.cache.mkdir(parents=True, exist_ok=True)
    with (places.cache / f"{name}.lock").open("w") as alone:
        fcntl.flock(alone, fcntl.LOCK_EX)
        if target.is_dir():  # another process made it meanwhile
            return target
        with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=places.cache) as scratch:
            found = _unpack(packages, Path(scratch))
            if isinstance(found, Missing):
                return found
            found.rename(target)
    return target


def _unpack(packages: Sequence[str], scratch: Path) -> Path | Missing:
    lists, parts, root = scratch / "lists", scratch / "sources", scratch / "root"
    for folder in (lists / "partial", parts, root):
        folder.mkdir(parents=True)
    text = re.sub(r"(?m)^Components: main$", "Components: main non-free", SOURCES.read_text())
    (parts / "debian.sources").write_text(text)
    options = (
        *("-o", f"Dir::Etc::sourceparts={parts}", "-o", "Dir::Etc::sourcelist=/dev/null"),
        *("-o", f"Dir::State::lists={lists}", "-o", "APT::Sandbox::User=root"),
    )
    for action in (("update",), ("download", *packages)):
        done = run(
            ["/usr/bin/apt-get", "--quiet", *options, *action],
            seconds=SECONDS,
            cwd=scratch,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if done.returncode:
            return Missing(f"apt-get {' '.join(action)} failed: {' / '.join(done.stdout.strip().splitlines()[-3:])}")
    for package in sorted(scratch.glob("*.deb")):
        run(["/usr/bin/dpkg", "-x", str(package), str(root)], seconds=SECONDS).check_returncode()
    return root
