""".ci/commit-message: which messages it refuses, and that it says why."""

import subprocess
from pathlib import Path

import pytest

CHECK = Path(__file__).parents[1] / ".ci" / "commit-message"
OLD_WORD = "no" + "body"  # one of docs/old-words.txt, which this file may not have either


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
        (f"Keep a slice although {OLD_WORD} holds it\n", f"{OLD_WORD} ==>"),
    ],
)
def test_what_is_refused(tmp_path: Path, message: str, said: str) -> None:
    file = tmp_path / "message"
    file.write_text(message)
    done = subprocess.run([CHECK, file], capture_output=True, text=True, cwd=CHECK.parent, check=False)
    assert (done.returncode == 0) == (said == ""), done.stdout + done.stderr
    assert said in done.stdout + done.stderr
