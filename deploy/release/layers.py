"""The three layers of the image: Debian's Python, the locked dependencies, the product.

Takes an architecture and returns tar files. Nothing is compiled and nothing of the other architecture is run: uv
chooses wheels for that platform, and byte code, which is the same for all, is made by the image's own Python of this
machine's architecture, as the programs run on a read-only file system.
"""

import os
import platform
import subprocess
from dataclasses import dataclass
from pathlib import Path

from deploy.release import debian
from deploy.release.oci import tar_of

ROOT = Path(__file__).parents[2]
PLATFORMS = {"amd64": ("x86_64", "lib64/ld-linux-x86-64.so.2"), "arm64": ("aarch64", "lib/ld-linux-aarch64.so.1")}
"""Machine as the kernel names it, and the dynamic linker."""
PYTHON = "3.13"
OLDEST_GLIBC = "2_28"
PREFIX = "opt/gpuplan"
USERS = "root:x:0:0:root:/root:/usr/sbin/nologin\ngpuplan:x:65532:65532:gpuplan:/:/usr/sbin/nologin\n"
SECONDS = 900


@dataclass(frozen=True, slots=True, kw_only=True)
class Builder:
    """`uv` is the program, `cache` keeps Debian's packages, `at` is the time of all files in seconds of Unix."""

    uv: Path
    cache: Path
    scratch: Path
    at: int

    def layers(self, architecture: str) -> list[bytes]:
        """The lowest first."""
        return [
            self._tar(self.base(architecture)),
            self._tar(self.dependencies(architecture)),
            self._tar(self.product()),
        ]

    def base(self, architecture: str) -> Path:
        """Debian's packages, with byte code for the standard library."""
        root = self.scratch / architecture
        if not root.exists():
            root.mkdir(parents=True)
            address = debian.mirror(os.environ)
            for package in debian.read(debian.LIST.read_text(), architecture):
                debian.unpack(debian.fetch(package, address, self.cache), root)
            (root / "usr/bin/python3").symlink_to(f"python{PYTHON}")
            (root / "etc/passwd").write_text(USERS)
            (root / "etc/group").write_text("root:x:0:\ngpuplan:x:65532:\n")
            (root / "tmp").chmod(0o1777)
            self._compile(root / f"usr/lib/python{PYTHON}", root)
        return root

    def dependencies(self, architecture: str) -> Path:
        """As `deploy/image/dependencies.sh` has it."""
        root = self.scratch / f"dependencies-{architecture}"
        machine, _ = PLATFORMS[architecture]
        chosen = f"--python-version {PYTHON} --python-platform {machine}-manylinux_{OLDEST_GLIBC}"
        self._script("dependencies.sh", root, UV=str(self.uv), PLATFORM=chosen)
        self._compile(root / PREFIX / "lib", root)
        return root

    def product(self) -> Path:
        """As `deploy/image/product.sh` has it: it is the same for each architecture."""
        root = self.scratch / "product"
        if not root.exists():
            self._script("product.sh", root, INTERPRETER="/usr/bin/python3", COMPILE="")
            self._compile(root / PREFIX / "lib", root)
        return root

    def _script(self, name: str, root: Path, **environ: str) -> None:
        command = [str(ROOT / "deploy/image" / name), str(root / PREFIX)]
        subprocess.run(command, check=True, timeout=SECONDS, env={**os.environ, **environ})

    def _compile(self, folder: Path, root: Path) -> None:
        """By the Python of the image: `root` is where the image's `/` lies, which the byte code must not name."""
        here = next(name for name, (machine, _) in PLATFORMS.items() if machine == platform.machine())
        base, (machine, linker) = self.base(here), PLATFORMS[here]
        libraries = base / f"usr/lib/{machine}-linux-gnu"
        python = [str(base / "usr" / linker), "--library-path", str(libraries), str(base / f"usr/bin/python{PYTHON}")]
        options = ["-q", "--invalidation-mode", "unchecked-hash", "-s", str(root), "-p", "/"]
        # The order of sets shows in byte code; of a package for other versions of Python some files may not compile.
        environ = {"PYTHONHOME": str(base / "usr"), "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
        subprocess.run([*python, "-m", "compileall", *options, str(folder)], env=environ, check=False, timeout=SECONDS)
        if next(folder.rglob("*.pyc"), None) is None:  # the interpreter did not start
            raise ValueError(f"no byte code was made in {folder}, by {python[0]}")

    def _tar(self, root: Path) -> bytes:
        return tar_of(root, at=self.at)
