"""Fetches and builds what `make e2e-node` needs, where it is not cached yet; prints what is missing."""

import os
import sys
from pathlib import Path

from tests.e2e.rig.containers.prepare import prepare
from tests.e2e.rig.controlplane import Missing, Places


def main() -> int:
    """The exit code: 69 (as in sysexits.h: unavailable) where something cannot be obtained here."""
    if os.geteuid() != 0:
        print("containers need root: run as root, or with sudo -E", file=sys.stderr)
        return os.EX_UNAVAILABLE
    found = prepare(os.environ.get("K8S") or None, Places.of(os.environ, Path.home()), print)
    if isinstance(found, Missing):
        print(found.message, file=sys.stderr)
        return 1 if found.broken else os.EX_UNAVAILABLE
    return 0


if __name__ == "__main__":
    sys.exit(main())
