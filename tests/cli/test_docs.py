"""The pages for users name every setting and every condition; a new one without a line fails here."""

from pathlib import Path

import pytest

from controller.config.settings import Settings as ControllerSettings
from controller.model.reasons import UnplacedReason
from crds.v1alpha1.names import Condition
from nodeagent.settings import Settings as AgentSettings

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("settings", [ControllerSettings, AgentSettings])
def test_every_setting_is_in_the_operating_page(settings: type[ControllerSettings | AgentSettings]) -> None:
    page = (ROOT / "docs" / "operating.md").read_text()

    assert [f.alias for f in settings.model_fields.values() if f"| `{f.alias}` |" not in page] == []


def test_every_condition_is_in_the_operating_page() -> None:
    page = (ROOT / "docs" / "operating.md").read_text()

    assert [condition for condition in Condition if f"| {condition} |" not in page] == []


def test_every_reason_is_in_the_readme() -> None:
    page = (ROOT / "README.md").read_text()

    assert [reason for reason in UnplacedReason if f"| {reason.value} |" not in page] == []
