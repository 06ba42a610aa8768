"""The site of the documentation: it is built of the pages of the repository, and a broken link stops it."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.exceptions import Abort
from mkdocs.structure.files import File
from mkdocs.structure.pages import Page

from docs.generate import site

ROOT = Path(__file__).parents[2]


def config(**more: Any) -> Any:
    return load_config(str(ROOT / "mkdocs.yml"), **more)


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """The pages, where a test may change them."""
    shutil.copytree(ROOT / "docs", tmp_path / "docs", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


@pytest.mark.slow
def test_every_page_of_the_repository_is_on_the_site(copied: Path) -> None:
    (copied / "docs/new-page.md").write_text("# New\n\n[operating](operating.md)\n")
    built = copied / "site"

    build(config(docs_dir=str(copied / "docs"), site_dir=str(built)))

    there = {path.relative_to(built).with_suffix(".md").as_posix() for path in built.rglob("*.html")} - {"404.md"}
    pages = {path.relative_to(copied / "docs").as_posix() for path in (copied / "docs").rglob("*.md")}
    assert there == {name.replace("README", "index") for name in pages} | set(site.OUTSIDE)
    front = (built / "index.html").read_text()
    assert 'href="new-page.html"' in front
    assert 'href="runbooks/GpuplanDrift.html"' in front


@pytest.mark.slow
def test_a_broken_link_stops_the_build(copied: Path, caplog: pytest.LogCaptureFixture) -> None:
    links = ["nowhere.md", "operating.md#no-such-heading", "../nowhere.py"]
    (copied / "docs/new-page.md").write_text("# New\n\n" + "".join(f"[x]({link})\n" for link in links))
    with pytest.raises(Abort):
        build(config(docs_dir=str(copied / "docs"), site_dir=str(copied / "site")))
    refused = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert sorted(link for link in links for message in refused if f"'{link}'" in message) == sorted(links)


@pytest.mark.parametrize(
    ("page", "written", "shown"),
    [
        ("index.md", "[a](docs/operating.md#metrics)", "[a](operating.md#metrics)"),
        ("index.md", "[docs/concepts.md](docs/concepts.md)", "[Concepts](concepts.md)"),
        ("index.md", "![a](docs/overview.svg)", "![a](overview.svg)"),
        ("install.md", "[a](../docs/values.md), [b](../README.md)", "[a](values.md), [b](index.md)"),
        ("design.md", "[a](../deploy/README.md), [b](decisions/)", "[a](install.md), [b](decisions/README.md)"),
        ("runbooks/GpuplanDrift.md", "[a](../operating.md)", "[a](../operating.md)"),
        ("design.md", "[`crds/definition.py`](../crds/definition.py) is code", "`crds/definition.py` is code"),
        ("design.md", "[a test](../tests/test_docs.py)", "a test (`tests/test_docs.py`)"),
        ("design.md", "[a](https://example.com/x), [b](#here)", "[a](https://example.com/x), [b](#here)"),
        ("design.md", "`[a](../deploy/README.md)`", "`[a](../deploy/README.md)`"),
        ("design.md", "```\n[a](../README.md)\n```", "```\n[a](../README.md)\n```"),
        ("design.md", "[a](nowhere.md)", "[a](nowhere.md)"),
    ],
)
def test_links(page: str, written: str, shown: str) -> None:
    of = config()
    file = File(page, of.docs_dir, of.site_dir, of.use_directory_urls)
    assert site.on_page_markdown(written, page=Page(None, file, of)) == shown
