"""Pictures of the docs, from finished run folders: ``python docs/site/pictures.py RUN [RUN ...]``.

``--only shift_report field`` makes these only; ``--prefix lvlm_`` names them ``lvlm_...``.

Each run gives the pictures of its task: its page in headless Chromium, its figures as small WebP.
``gallery.yaml`` has the commands that make the runs.
"""

from __future__ import annotations

import argparse
import io
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from PIL import Image

PICTURES = Path(__file__).parents[1] / "assets" / "pictures"
#: Page: names of its pictures, each of a section without its figures (None: of the page from its
#: top), and the height in pixels of what is shown.
PAGES: dict[str, list[tuple[str, str | None, int]]] = {
    "report": [("shift_report", None, 1130), ("field", "Detection by shift level", 560)],
    "shift": [("shift", None, 560)],
    "oodbench": [("oodbench", None, 720)],
    "oric": [("oric", None, 720)],
    "ode": [("ode", None, 830)],
    "leaderboard": [("leaderboard", None, 1130)],
    "predictions": [("predictions", None, 1130)],
}
WIDTH = 1280  # of a browser's window
FIGURE, TALLEST = 900, 1150  # pixels, at most; of a taller figure the upper part is shown


def main() -> None:
    """Makes the pictures of the runs that are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--chromium", default="chromium")
    parser.add_argument("--only", nargs="+", help="names of pictures")
    parser.add_argument("--prefix", default="", help="of the names of the files")
    arguments = parser.parse_args()
    PICTURES.mkdir(parents=True, exist_ok=True)
    for run in arguments.runs:
        for name, widest, make in pictures(run, arguments.chromium):
            if arguments.only is None or name in arguments.only:
                save(make(), arguments.prefix + name, widest)


def pictures(run: Path, chromium: str) -> Iterator[tuple[str, int, Callable[[], Image.Image]]]:
    """Name, largest width and maker of every picture of a run."""
    for page, parts in PAGES.items():
        file = run / f"{page}.html"
        if not file.exists():
            continue
        for name, section, height in parts:
            if section is None or f"<h2>{section}" in file.read_text():
                yield name, WIDTH, partial(screenshot, file, section, height, chromium)
        prefix = "" if page in ("report", "shift") else f"{page}_"
        for figure in sorted((run / "figures").glob("*.png")):
            if not figure.stem.endswith("_all_ood"):  # as those of the grid
                yield f"{prefix}{figure.stem}", FIGURE, partial(Image.open, figure)


def screenshot(page: Path, section: str | None, height: int, chromium: str) -> Image.Image:
    """The upper part of a page, or of one of its sections, as a browser shows it."""
    with tempfile.TemporaryDirectory() as folder:
        if section is not None:
            text = page.read_text()
            (anchor,) = re.findall(rf'<section id="(\w+)">\s*<h2>{section}', text)
            kept = f":not(:has(#{anchor}), #{anchor}, #{anchor} *)"
            style = f"<style>body {kept}, figure {{ display: none }}</style></head>"
            page = Path(folder) / page.name
            page.write_text(text.replace("</head>", style, 1))
        shot = Path(folder) / "shot.png"
        quiet = "--headless --no-sandbox --disable-gpu --no-first-run --hide-scrollbars"
        profile = f"--user-data-dir={folder}/profile"
        size = f"--window-size={WIDTH},{height}"
        command = [chromium, *quiet.split(), profile, size, f"--screenshot={shot}"]
        subprocess.run([*command, page.resolve().as_uri()], check=True, capture_output=True)
        return Image.open(io.BytesIO(shot.read_bytes()))


def save(picture: Image.Image, name: str, widest: int) -> None:
    """As WebP, which every browser and code host shows."""
    picture = picture.convert("RGB")
    if picture.width > widest:
        size = widest, round(picture.height * widest / picture.width)
        picture = picture.resize(size, Image.Resampling.LANCZOS)
    picture = picture.crop((0, 0, picture.width, min(picture.height, TALLEST)))
    picture.save(PICTURES / f"{name}.webp", quality=55, method=6)


if __name__ == "__main__":
    main()
