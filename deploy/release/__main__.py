"""`python -m deploy.release`, or `make release VERSION=…`: everything of a release, in one folder.

Takes a clean checkout whose version is the given one. Writes the image for all architectures and the chart as OCI
layouts, the chart's package, wheel and sdist, CRDs and manifests, a list of what is in it (SPDX), release notes and
checksums. Two runs on one commit make the same bytes: all times are the commit's. Signs and uploads nothing.
"""

import argparse
import hashlib
import os
import re
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from crds.definition import text as crd_text
from deploy.generate import manifests
from deploy.release import contents
from deploy.release.changelog import CHANGELOG, FRAGMENTS, assembled, fragments
from deploy.release.chart import package, released
from deploy.release.layers import PLATFORMS, PREFIX, Builder
from deploy.release.oci import Image, Layout
from partitioning import __version__

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).with_name("uv")
ENVIRONMENT = {
    "PATH": f"/{PREFIX}/bin:/usr/bin:/bin",
    "PYTHONPATH": f"/{PREFIX}/lib",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONUNBUFFERED": "1",
    "PYTHONSAFEPATH": "1",
}
"""The root file system is read-only: nothing writes byte code, and temporary files need a volume at /tmp."""
USER = "65532:65532"
"""The controller needs no more. Agent and device plugin manage the node's GPUs: their pods have runAsUser: 0."""


class RefusedError(Exception):
    """The release cannot be made; the message says what to do."""


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m deploy.release", description=__doc__)
    parser.add_argument("--version", required=True)
    parser.add_argument("--repository", default="", help="registry and name that the chart names by default")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="must not be there")
    parser.add_argument("--helm", type=Path, required=True, metavar="FILE")
    arguments = parser.parse_args(argv)
    try:
        _check(arguments.version, arguments.out)
        make(arguments.version, arguments.repository, arguments.out, arguments.helm)
    except (RefusedError, LookupError, ValueError) as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    return 0


def make(version: str, repository: str, out: Path, helm: Path) -> None:
    """Write all of it."""
    at = int(_git("log", "-1", "--format=%ct"))
    created = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    out.mkdir(parents=True)
    labels = {f"org.opencontainers.image.{key}": value for key, value in _labels(version).items()}
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "gpuplan" / "debian"
    with tempfile.TemporaryDirectory(prefix="gpuplan-release-") as scratch:
        builder = Builder(uv=UV, cache=cache, scratch=Path(scratch), at=at)
        layers = {architecture: builder.layers(architecture) for architecture in PLATFORMS}
        image = Image(environment=ENVIRONMENT, user=USER, labels=labels, created=created)
        layout = Layout(out / "image")
        index = layout.image(image, layers)
        layout.close(version, index)
        chart = Path(scratch) / "gpuplan"
        metadata = released(chart, version, repository, index["digest"])
        archive = package(chart, at)
        (out / f"gpuplan-{version}.tgz").write_bytes(archive)
        artefact = Layout(out / "chart")
        artefact.close(version, artefact.chart(archive, metadata, created))
        _write_manifests(out, helm, chart, repository)
    environ = {**os.environ, "SOURCE_DATE_EPOCH": str(at)}
    build = [str(UV), "build", "--quiet", "--offline", "--no-build-isolation", "--python", sys.executable]
    subprocess.run([*build, "--out-dir", str(out), str(ROOT)], env=environ, check=True, timeout=600)
    (out / ".gitignore").unlink(missing_ok=True)
    (out / "gpuplan.spdx.json").write_text(contents.spdx(version, created))
    said = notes(version, index["digest"], repository, CHANGELOG.read_text(), fragments(FRAGMENTS))
    (out / "notes.md").write_text(said)
    (out / "sha256sums.txt").write_text(checksums(out))


def _write_manifests(out: Path, helm: Path, chart: Path, repository: str) -> None:
    options = [*manifests.OPTIONS, *(["--set", f"image.repository={repository}"] if repository else [])]
    done = manifests.template(helm, *options, chart=chart)
    if done.returncode:
        raise RefusedError(f"helm template: {done.stderr.strip()}")
    (out / "crds.yaml").write_text(crd_text())
    (out / "manifests.yaml").write_text("---\n".join(manifests.split(done.stdout).values()))


def _check(version: str, out: Path) -> None:
    if version != __version__:
        raise RefusedError(
            f"the version of this checkout is {__version__} (partitioning/__init__.py), and not {version}"
        )
    if changed := _git("status", "--porcelain"):
        raise RefusedError(f"the checkout has changes that are in no commit:\n{changed}")
    if out.exists():
        raise RefusedError(f"{out} is there: remove it, or name another folder")


def notes(version: str, digest: str, repository: str, text: str, added: list[tuple[str, str]]) -> str:
    """The changelog's part about the version (before it is released, what is unreleased), and what to install."""
    part = rf"^## {re.escape(version)}\b[^\n]*\n(.*?)(?=^## |\Z)"
    found = re.search(part, text, re.S | re.M) or re.search(part, assembled(text, version, added), re.S | re.M)
    said = found.group(1).strip() if found else ""
    return f"# gpuplan {version}\n\nImage: `{repository or 'gpuplan'}@{digest}`\n\n{said}\n"


def checksums(out: Path) -> str:
    """Of every file, for `sha256sum --check`."""
    files = sorted(path for path in out.rglob("*") if path.is_file())
    return "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(out)}\n" for path in files)


def _labels(version: str) -> dict[str, str]:
    return {"title": "gpuplan", "licenses": "Apache-2.0", "version": version, "revision": _git("rev-parse", "HEAD")}


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], capture_output=True, text=True, cwd=ROOT, check=True, timeout=60)
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
