"""Takes the picture of a page that `relval inspect` made, as CONTRIBUTING.md says."""

import argparse
import base64
import tempfile
from pathlib import Path

from tests.browser import browser

WIDTH = 960


def photograph(page: Path, picture: Path, i: int, j: int) -> None:
    """Shows the states i and j, and takes the curves, the differences and the frames."""
    with tempfile.TemporaryDirectory() as profile, browser(Path(profile)) as started:
        shown = started.page()
        shown.show(WIDTH, 1400)
        shown.open(page)
        shown.run(f"go({i}, {j})")
        shown.run("Promise.all([...document.images].map((image) => image.decode()))")
        top, bottom = shown.run(
            "[document.querySelector('.played').offsetTop, "
            "(pairs => pairs.offsetTop + pairs.offsetHeight)(document.querySelector('.pairs'))]"
        )
        clip = {"x": 0, "y": top - 20, "width": WIDTH, "height": bottom - top + 40, "scale": 1}
        taken = shown("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        picture.write_bytes(base64.b64decode(taken["data"]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("i", type=int)
    parser.add_argument("j", type=int)
    photograph(**vars(parser.parse_args()))
