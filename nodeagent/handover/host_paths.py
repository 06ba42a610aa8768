"""Finds a path of the host below the root directory that a process of the host shows.

A link with an absolute target leads, in `/proc/1/root`, to a place in the reader's own container. So each link is read
and followed from that root, as the host does. For directories of the host alone: never follow a container's links.
"""

from pathlib import Path

MAX_LINKS = 40
"""As many as the kernel follows."""


def on_host(root: Path, path: Path) -> Path:
    """Below `root`; raises OSError where a link cannot be read."""
    done, left = root, list(path.parts[1:])
    for _ in range(MAX_LINKS):
        while left and not (done / left[0]).is_symlink():
            done /= left.pop(0)
        if not left:
            break
        target = (done / left.pop(0)).readlink()
        done, left = root if target.is_absolute() else done, [*target.parts[target.is_absolute() :], *left]
    return done.joinpath(*left)
