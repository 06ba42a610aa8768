"""Decides whether failed tests may run a second time: at most two in one run of all suites.

Reads pytest's own record of failed tests. Where SECOND_TRIES names a file, as in .ci/run, the second tries of earlier
suites are counted from it and the new ones are added. Never runs a test. `python -m tests.second_try CACHE_DIR` exits 0
when the second run may begin.
"""

import json
import os
import sys
from pathlib import Path

MOST = 2


def verdict(failed: list[str], earlier: list[str]) -> tuple[int, str]:
    """The exit code and what to print; `earlier` are tests of suites before that needed a second try."""
    tests = sorted([*earlier, *failed])
    listed = "\n".join(f"  {test}" for test in tests)
    if len(tests) > MOST:
        return 1, f"NO SECOND TRY: {len(tests)} tests failed in this run, more than {MOST}:\n{listed}"
    return 0, f"SECOND TRY of {len(failed)} failed tests ({len(tests)} in this run), see above why:\n{listed}"


def main(cache: Path, counted: Path | None) -> int:
    failed = list(json.loads((cache / "v" / "cache" / "lastfailed").read_text()))
    earlier = counted.read_text().splitlines() if counted is not None and counted.exists() else []
    code, text = verdict(failed, earlier)
    print(text, flush=True)
    if counted is not None:
        with counted.open("a") as file:
            file.writelines(f"{test}\n" for test in failed)
    return code


if __name__ == "__main__":
    named = os.environ.get("SECOND_TRIES")
    sys.exit(main(Path(sys.argv[1]), Path(named) if named else None))
