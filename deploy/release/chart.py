"""The chart of a release: this checkout's, with the image that belongs to it as its default.

Takes a folder to copy to and the image's digest; returns what Chart.yaml says. `package` makes the archive that helm
installs, of the same bytes each time.
"""

import gzip
import re
import shutil
from pathlib import Path
from typing import Any

import yaml

from deploy.generate.manifests import CHART
from deploy.release.oci import tar_of


def released(target: Path, version: str, repository: str, digest: str) -> dict[str, Any]:
    """Copy the chart; raises ValueError where it has another version, or no default for the image to replace."""
    shutil.copytree(CHART, target)
    metadata = yaml.safe_load((target / "Chart.yaml").read_text())
    if {metadata["version"], metadata["appVersion"]} != {version}:
        raise ValueError(f"deploy/chart/Chart.yaml has the version {metadata['version']}, and not {version}")
    values = (target / "values.yaml").read_text()
    values, count = re.subn(r"(?m)^(  digest: )''$", rf"\g<1>{digest}", values)
    if repository:
        values, more = re.subn(r"(?m)^(  repository: )''$", rf"\g<1>{repository}", values)
        count += more - 1
    if count != 1:
        raise ValueError("deploy/chart/values.yaml has no image.digest and image.repository to set")
    (target / "values.yaml").write_text(values)
    assert isinstance(metadata, dict)
    return metadata


def package(chart: Path, at: int) -> bytes:
    """The .tgz, as `helm package` lays it out."""
    return gzip.compress(tar_of(chart, below=chart.name, at=at), mtime=0)
