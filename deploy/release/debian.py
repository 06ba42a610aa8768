"""The lowest layer of the image: Python and what it needs, from Debian's packages, each by its hash.

`packages.txt` next to this module lists every file with its hash, for each architecture; `read` returns the list,
`fetch` brings a file and checks it, `unpack` lays its content below a folder without running any of its scripts.
`python -m deploy.release.debian` renews the list: the newest that Debian's stable release has, with all that they
depend on. Nothing here takes a file that the list does not name. The address of the mirror is the machine's own: of its
apt sources, or DEBIAN_MIRROR.
"""

import hashlib
import io
import lzma
import os
import re
import sys
import tarfile
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

LIST = Path(__file__).with_name("packages.txt")
ARCHITECTURES = ("amd64", "arm64")
RELEASE = "trixie"
ROOTS = ("base-files", "coreutils", "dash", "libpython3.13-stdlib", "libstdc++6", "python3.13-minimal")
"""`sh` and `sleep` for the MPS daemons' first process, Python, and what compiled wheels are linked to."""
NOT_NEEDED = {"awk", "debconf", "debconf-2.0", "dpkg", "install-info", "perl-base", "tar", "usrmerge"}
"""For scripts of the packages, which are not run here."""
LEFT_OUT = ("usr/share/doc/", "usr/share/info/", "usr/share/lintian/", "usr/share/locale/", "usr/share/man/")
KEPT = "copyright"
SECONDS = 120.0


@dataclass(frozen=True, slots=True, order=True)
class Package:
    """One file of the mirror; `path` is below its root."""

    architecture: str
    name: str
    version: str
    sha256: str
    path: str


def read(text: str, architecture: str) -> list[Package]:
    """The packages of one architecture."""
    packages = (Package(*line.split()) for line in text.splitlines() if line and not line.startswith("#"))
    return [package for package in packages if package.architecture == architecture]


def mirror(environ: Mapping[str, str], sources: Path = Path("/etc/apt/sources.list.d/debian.sources")) -> str:
    """Where the packages come from; raises LookupError."""
    if "DEBIAN_MIRROR" in environ:
        return environ["DEBIAN_MIRROR"].rstrip("/")
    found = re.search(r"^URIs:\s*(\S+)", sources.read_text(), re.MULTILINE) if sources.exists() else None
    if found is None:
        raise LookupError(f"set DEBIAN_MIRROR to the address of a mirror of Debian: {sources} names none")
    return found.group(1).rstrip("/")


def fetch(package: Package, address: str, cache: Path) -> Path:
    """The file, checked; raises ValueError where it is another one."""
    target = cache / f"{package.sha256}.deb"
    if not target.exists():
        content = _get(f"{address}/{package.path}")
        digest = hashlib.sha256(content).hexdigest()
        if digest != package.sha256:
            raise ValueError(f"{package.path} has the hash {digest}, and not {package.sha256} of {LIST.name}")
        cache.mkdir(parents=True, exist_ok=True)
        part = target.with_suffix(f".{os.getpid()}")
        part.write_bytes(content)
        part.rename(target)
    return target


def unpack(file: Path, root: Path) -> None:
    """Lay the package's files below `root`, without documentation but with the licences."""
    with tarfile.open(fileobj=io.BytesIO(_data(file))) as tar:
        members = [member for member in tar if _is_kept(member.name.removeprefix("./"))]
        tar.extractall(root, members, filter="tar")


def _is_kept(name: str) -> bool:
    return not name.startswith(LEFT_OUT) or PurePosixPath(name).name == KEPT


def _data(file: Path) -> bytes:
    """The member `data.tar.*` of a package: an ar archive (deb(5)), whose members begin with a header of 60 bytes."""
    content = file.read_bytes()
    at = len(b"!<arch>\n")
    while at < len(content):
        name, size = content[at : at + 16].decode().strip(), int(content[at + 48 : at + 58])
        if name.rstrip("/") == "data.tar.xz":
            return lzma.decompress(content[at + 60 : at + 60 + size])
        at += 60 + size + size % 2
    raise ValueError(f"{file.name} has no data.tar.xz")


def closure(index: Mapping[str, Mapping[str, str]], roots: tuple[str, ...] = ROOTS) -> list[str]:
    """The roots with all that they depend on, of alternatives the first; `index` has fields by package."""
    found: set[str] = set()
    left = list(roots)
    while left:
        name = left.pop()
        if name in found or name in NOT_NEEDED:
            continue
        found.add(name)
        fields = index[name]
        wanted = ", ".join(fields[field] for field in ("Pre-Depends", "Depends") if field in fields)
        left += [re.split(r"[ :|(]", clause.strip())[0] for clause in wanted.split(",") if clause.strip()]
    return sorted(found)


def _paragraphs(text: str) -> Iterator[dict[str, str]]:
    for paragraph in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in paragraph.splitlines() if ": " in line and line[0] != " ")
        if fields:
            yield fields


def _get(address: str) -> bytes:
    with urllib.request.urlopen(address, timeout=SECONDS) as answer:
        content = answer.read()
        assert isinstance(content, bytes)
        return content


def main() -> int:
    address = mirror(os.environ)
    lines = ["# Made by `python -m deploy.release.debian`: architecture, package, version, SHA-256, path on a mirror"]
    for architecture in ARCHITECTURES:
        listed = _get(f"{address}/dists/{RELEASE}/main/binary-{architecture}/Packages.xz")
        index = {fields["Package"]: fields for fields in _paragraphs(lzma.decompress(listed).decode())}
        for name in closure(index):
            fields = index[name]
            lines.append(f"{architecture} {name} {fields['Version']} {fields['SHA256']} {fields['Filename']}")
    LIST.write_text("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
