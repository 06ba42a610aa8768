"""Names the tests that failed, for a second run, and refuses one when more than two failed.

Reads pytest's own record of failed tests. It never runs a test. `python -m tests.second_try CACHE_DIR` exits 0 when a
second run may be tried.
"""

import json
import sys
from pathlib import Path

MOST = 2


def verdict(failed: list[str]) -> tuple[int, str]:
    """The exit code and what to print."""
    listed = "\n".join(f"  {test}" for test in sorted(failed))
    if len(failed) > MOST:
        return 1, f"NO SECOND TRY: {len(failed)} tests failed, more than {MOST}:\n{listed}"
    return 0, f"SECOND TRY of {len(failed)} failed tests, see above why:\n{listed}"


if __name__ == "__main__":
    code, text = verdict(list(json.loads((Path(sys.argv[1]) / "v" / "cache" / "lastfailed").read_text())))
    print(text, flush=True)
    sys.exit(code)
