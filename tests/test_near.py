"""Which tests `make check` takes for a change."""

from pathlib import Path

import pytest

from tests.near import near

FILES = ("tests/test_docs.py", "tests/kube/test_apply.py", "tests/kube/api/test_get.py", "tests/kube/builders.py")


@pytest.mark.parametrize(
    ("changed", "more"),
    [
        ([], []),
        (["kube/apply.py"], ["tests/kube/test_apply.py"]),
        (["kube/api/deep/get.py"], ["tests/kube/api/test_get.py"]),
        (["tests/kube/builders.py"], ["tests/kube/test_apply.py"]),
        (["tests/kube/api/test_get.py", "README.md"], ["tests/kube/api/test_get.py"]),
        (["cli/plan.py"], []),
    ],
)
def test_the_tests_of_the_mirrored_folder_come_along(tmp_path: Path, changed: list[str], more: list[str]) -> None:
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert near(changed, tmp_path) == sorted(["tests/test_docs.py", *more])
