"""Makes docs/settings.md: every setting of controller and node agent, with its default and meaning.

Reads the models that the programs read their files with, so that a page never lacks a setting. Not the chart's values:
docs/values.md has those.
"""

from collections.abc import Iterator
from typing import Any

from controller.config.settings import Settings as ControllerSettings
from deploy.generate.files import walk
from docs.generate.tables import table
from kube.settings import Section
from nodeagent.settings import Settings as AgentSettings

HEADER = ("key", "default", "meaning")
INTRODUCTION = """# Settings of the programs

Each program reads one YAML file, `--config FILE`. An unknown key is refused by name, with the known ones. With the
chart write them below `controller.settings` and `agent.settings`, but those that [values.md](values.md) has at the
top or elsewhere, such as `batchWindowIdleSeconds`: these are written there alone. A dot stands for a mapping.
"""


def page() -> str:
    """The page as text."""
    return "\n".join(
        [
            INTRODUCTION,
            "## Controller\n",
            table(HEADER, _rows(ControllerSettings)),
            "## Node agent\n",
            table(HEADER, _rows(AgentSettings)),
        ]
    )


def _rows(settings: type[Section]) -> Iterator[tuple[str, str, str]]:
    for value in walk(settings):
        yield f"`{'.'.join(value.path)}`", "" if value.group else _shown(value.default), value.text


def _shown(default: Any) -> str:
    if isinstance(default, list):
        return f"[{', '.join(map(str, default))}]"
    return str(default).lower() if isinstance(default, bool) else "" if default is None else str(default)
