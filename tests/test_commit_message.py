""".ci/commit-message: which messages it refuses, and that it says why."""

import subprocess
from pathlib import Path

import pytest

CHECK = Path(__file__).parents[1] / ".ci" / "commit-message"


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("Keep a slice until its holder has ended\n", ""),
        ("Keep a slice until its holder has ended\n\nElse the next pod would get it.\n", ""),
        ("Merge branch 'other' of anywhere", ""),
        ("fixup! keep a slice.", ""),
        ("K" * 101, "the subject has 101 characters"),
        ("keep a slice", "in the imperative"),
        ("Keep a slice.", "without a full stop"),
        ("Keep a slice\nuntil its holder has ended\n", "the second line is empty"),
        ("Keep a slice although nobody holds it\n", "ody ==>"),
    ],
)
def test_what_is_refused(tmp_path: Path, message: str, said: str) -> None:
    file = tmp_path / "message"
    file.write_text(message)
    done = subprocess.run([CHECK, file], capture_output=True, text=True, cwd=CHECK.parent, check=False)
    assert (done.returncode == 0) == (said == ""), done.stdout + done.stderr
    assert said in done.stdout + done.stderr
