from pathlib import Path

import pytest
from PIL import Image

from relval.experiments.demo import demo


def test_the_demonstration_ends_with_a_picture_and_can_be_repeated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = demo(tmp_path, total_steps=3_000)
    assert str(picture) in capsys.readouterr().out
    with Image.open(picture) as image:
        assert image.width > 1_000
    assert demo(tmp_path, total_steps=3_000) == picture
    assert "has finished already" in capsys.readouterr().out
