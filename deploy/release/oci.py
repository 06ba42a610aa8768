"""OCI image layouts in a folder: images for several architectures, and charts as artefacts.

Takes layers (tar files) and values, writes blobs named by their hash, and returns descriptors. The same input makes the
same bytes: files are in order, have no owner, and the time that is given. Formats: the OCI image specification
(layout, index, manifest, config) and Helm's for charts in registries.
"""

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

OCI = "application/vnd.oci.image"
HELM = "application/vnd.cncf.helm"
Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """What is the same for each architecture."""

    environment: Mapping[str, str]
    user: str
    labels: Mapping[str, str]
    created: str
    """RFC 3339."""


class Layout:
    """A folder that registries' tools copy from: `skopeo copy --all oci:FOLDER docker://...`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "blobs/sha256").mkdir(parents=True)
        (folder / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')

    def blob(self, content: bytes, media_type: str) -> Json:
        """Its descriptor."""
        digest = hashlib.sha256(content).hexdigest()
        (self.folder / "blobs/sha256" / digest).write_bytes(content)
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}

    def document(self, content: Json, media_type: str) -> Json:
        return self.blob(json.dumps(content, separators=(",", ":"), sort_keys=True).encode(), media_type)

    def image(self, image: Image, layers: Mapping[str, Sequence[bytes]]) -> Json:
        """One manifest for each architecture, below one index; the layers are uncompressed tars, the lowest first."""
        manifests = []
        for architecture, tars in sorted(layers.items()):
            config = {
                "architecture": architecture,
                "os": "linux",
                "created": image.created,
                "config": {
                    "Env": [f"{key}={value}" for key, value in image.environment.items()],
                    "Labels": dict(image.labels),
                    "User": image.user,
                    "WorkingDir": "/",
                },
                "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(t).hexdigest()}" for t in tars]},
            }
            manifest = self._manifest(
                self.document(config, f"{OCI}.config.v1+json"),
                [self.blob(gzip.compress(content, mtime=0), f"{OCI}.layer.v1.tar+gzip") for content in tars],
            )
            manifests.append({**manifest, "platform": {"architecture": architecture, "os": "linux"}})
        media_type = f"{OCI}.index.v1+json"
        return self.document({"schemaVersion": 2, "mediaType": media_type, "manifests": manifests}, media_type)

    def chart(self, package: bytes, metadata: Json, created: str) -> Json:
        """A chart as `helm push` would store it."""
        return self._manifest(
            self.document(metadata, f"{HELM}.config.v1+json"),
            [self.blob(package, f"{HELM}.chart.content.v1.tar+gzip")],
            {
                "org.opencontainers.image.created": created,
                "org.opencontainers.image.title": metadata["name"],
                "org.opencontainers.image.version": metadata["version"],
            },
        )

    def close(self, tag: str, entry: Json) -> None:
        """Name what the layout holds."""
        named = {**entry, "annotations": {"org.opencontainers.image.ref.name": tag}}
        (self.folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [named]}))

    def _manifest(self, config: Json, layers: Sequence[Json], annotations: Mapping[str, str] | None = None) -> Json:
        content: Json = {"schemaVersion": 2, "mediaType": f"{OCI}.manifest.v1+json", "config": config, "layers": layers}
        if annotations:
            content["annotations"] = dict(annotations)
        return self.document(content, f"{OCI}.manifest.v1+json")


def tar_of(root: Path, below: str = "", at: int = 0) -> bytes:
    """All that lies in a folder, in order, of root and of one time; `below` is where it lies in the archive."""
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(root.rglob("*")):
            name = f"{below}/{path.relative_to(root)}" if below else str(path.relative_to(root))
            entry = tar.gettarinfo(path, name)
            if entry.islnk():  # two names of one file: the archive has both
                entry.type, entry.size = tarfile.REGTYPE, path.stat().st_size
            _add(tar, entry, at, path.read_bytes() if entry.isreg() else b"")
    return held.getvalue()


def tar_of_texts(files: Iterable[tuple[str, str]], at: int) -> bytes:
    """The same of texts by name."""
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, text in sorted(files):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(text.encode()), 0o644
            _add(tar, entry, at, text.encode())
    return held.getvalue()


def _add(tar: tarfile.TarFile, entry: tarfile.TarInfo, at: int, content: bytes) -> None:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mtime, entry.pax_headers = at, {}
    tar.addfile(entry, io.BytesIO(content) if entry.isreg() else None)
