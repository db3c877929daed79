"""Settings that tests start from."""

from dataclasses import replace
from typing import Any

from relval.critics import RelativeConfig
from relval.runs import PRESETS


def paper_critic(**changes: Any) -> RelativeConfig:
    """The paper's relative critic, with single values changed."""
    printed = PRESETS["paper"].critics["relative"]
    assert isinstance(printed, RelativeConfig)
    return replace(printed, **changes)
