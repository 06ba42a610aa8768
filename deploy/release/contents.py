"""What is in the image, as an SPDX 2.3 document: every Debian and Python package with version and hash.

Takes the two locks and no image: the image holds what they list, and nothing else but gpuplan.
"""

import json
import re
from pathlib import Path
from typing import Any

from deploy.release import debian

LOCK = Path(__file__).parents[2] / "requirements" / "image.txt"


def spdx(version: str, created: str) -> str:
    """The document as text; `created` is an RFC 3339 time."""
    packages = [_package("gpuplan", version, f"pkg:pypi/gpuplan@{version}", "Apache-2.0")]
    for name, locked in re.findall(r"^([a-z0-9-]+)==(\S+)", LOCK.read_text(), re.MULTILINE):
        packages.append(_package(name, locked, f"pkg:pypi/{name}@{locked}"))
    for architecture in debian.ARCHITECTURES:
        for package in debian.read(debian.LIST.read_text(), architecture):
            purl = f"pkg:deb/debian/{package.name}@{package.version}?arch={architecture}&distro={debian.RELEASE}"
            checksums = [{"algorithm": "SHA256", "checksumValue": package.sha256}]
            packages.append({**_package(package.name, package.version, purl), "checksums": checksums})
    whole, *parts = (package["SPDXID"] for package in packages)
    document = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"gpuplan-{version}",
        "documentNamespace": f"https://gpuplan.dev/spdx/gpuplan-{version}",
        "creationInfo": {"created": created, "creators": ["Tool: gpuplan-release"]},
        "packages": packages,
        "relationships": [
            {"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": whole},
            *({"spdxElementId": whole, "relationshipType": "CONTAINS", "relatedSpdxElement": part} for part in parts),
        ],
    }
    return json.dumps(document, indent=1) + "\n"


def _package(name: str, version: str, purl: str, licence: str = "NOASSERTION") -> dict[str, Any]:
    return {
        "SPDXID": "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", purl),
        "name": name,
        "versionInfo": version,
        "downloadLocation": "NOASSERTION",
        "licenseConcluded": licence,
        "licenseDeclared": licence,
        "copyrightText": "NOASSERTION",
        "externalRefs": [
            {"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": purl},
        ],
    }
