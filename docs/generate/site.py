"""A hook of mkdocs: makes the site of the same pages that people read in the repository.

Adds the pages that lie outside docs/, and to the navigation every page that mkdocs.yml does not list. Rewrites the
links between them: a file's name becomes the page's title, and a link to any other file of the repository its path,
since the site has no such file. What leads nowhere is left as it is, so that mkdocs reports it. Never changes what a
page says.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
OUTSIDE = {
    "index.md": "README.md",
    "install.md": "deploy/README.md",
    "contributing.md": "CONTRIBUTING.md",
    "changelog.md": "CHANGELOG.md",
    "roadmap.md": "ROADMAP.md",
    "vulnerabilities.md": "SECURITY.md",
}
"""Page of the site: file of the repository."""
FOLDERS = {"runbooks": "Operate", "decisions": "Inside"}
"""Folder of docs/: the section of the navigation that its pages are in."""
CODE_OR_LINK = re.compile(
    r"(?P<code>^```.*?^```|^(?: {4}|\t).*?$|`[^`\n]+`)|(?P<text>!?\[[^\]]*\])\((?P<to>[^)\s]+)\)",
    re.DOTALL | re.MULTILINE,
)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Complete the navigation: a new page needs no line in mkdocs.yml."""
    docs = Path(config.docs_dir)
    nav = list(config.nav or [])
    unlisted = {path.relative_to(docs).as_posix() for path in docs.rglob("*.md")} - set(_leaves(nav))
    for folder in sorted({posixpath.dirname(name) for name in unlisted}):
        names = sorted(name for name in unlisted if posixpath.dirname(name) == folder)
        section = next((entry for entry in nav if FOLDERS.get(folder) in entry), None)
        if isinstance(section, dict):
            section[FOLDERS[folder]].append({folder.capitalize(): names})
        else:
            nav.append({folder.capitalize() or "More": names})
    config.nav = nav
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for name, source in OUTSIDE.items():
        files.append(File.generated(config, name, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """The page with links that hold on the site."""
    name = page.file.src_uri
    return CODE_OR_LINK.sub(lambda found: _link(found, name), markdown)


def _leaves(nav: Any) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    return [leaf for entry in (nav.values() if isinstance(nav, dict) else nav or []) for leaf in _leaves(entry)]


def _link(found: re.Match[str], page: str) -> str:
    target, _, anchor = (found["to"] or "").partition("#")
    if found["code"] or not target or ":" in target:
        return found[0]
    source = OUTSIDE.get(page) or f"docs/{page}"
    path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
    if (ROOT / path).is_dir() and (ROOT / path / "README.md").is_file():
        path += "/README.md"
    if not (ROOT / path).exists():
        return found[0]
    there = {file: name for name, file in OUTSIDE.items()}.get(path) or path.removeprefix("docs/")
    text = found["text"].strip("![]").strip("`")
    if there == path:  # not a page of the site
        return f"`{path}`" if path.endswith(text) else f"{text} (`{path}`)"
    shown = f"[{_title(path)}]" if text.endswith((".md", "/")) else found["text"]
    return f"{shown}({posixpath.relpath(there, posixpath.dirname(page))}{'#' + anchor if anchor else ''})"


def _title(path: str) -> str:
    """Of a page: a reader of the site knows no files."""
    heading = re.search(r"^# (.+)$", (ROOT / path).read_text(), flags=re.MULTILINE)
    return heading[1] if heading else path
