"""Names the tests that are near a change, for `make check`; CI runs all.

tests/ mirrors the product folder by folder: a file that differs from the main branch, or is new, chooses the tests in
the folder that mirrors its own, or in the next one above. The tests of the repository itself always come along. Prints
paths; without git, or where nothing differs, only these.
"""

import subprocess
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[1]
TESTS = PurePosixPath("tests")


def near(changed: Iterable[str], root: Path = ROOT) -> list[str]:
    """Files of tests, relative to `root`."""
    folders = {TESTS}
    for path in map(PurePosixPath, changed):
        folder = path.parent if path.parts[0] == str(TESTS) else TESTS / path.parent
        while folder != TESTS and not any((root / folder).glob("test_*.py")):
            folder = folder.parent
        folders.add(folder)
    return sorted(found.relative_to(root).as_posix() for each in folders for found in (root / each).glob("test_*.py"))


def changed_files() -> list[str]:
    base = _git("merge-base", "HEAD", "origin/HEAD") or _git("merge-base", "HEAD", "main") or ["HEAD"]
    return _git("diff", "--name-only", base[0]) + _git("ls-files", "--others", "--exclude-standard")


def _git(*arguments: str) -> list[str]:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.splitlines() if done.returncode == 0 else []


if __name__ == "__main__":
    print(*near(changed_files()))
