"""Pictures of the docs, from finished run folders: ``python docs/site/pictures.py RUN [RUN ...]``.

Each run gives the pictures of its task: its page in headless Chromium, its figures as small WebP.
The commands that make the runs stand under the pictures in ``docs/gallery.md``.
"""

from __future__ import annotations

import argparse
import io
import subprocess
import tempfile
from pathlib import Path

from PIL import Image

PICTURES = Path(__file__).parents[1] / "assets" / "pictures"
#: Page: (name of its picture, height in pixels of the part that is shown).
PAGES = {
    "report": ("how_far", 1130),
    "oodbench": ("oodbench", 900),
    "oric": ("oric", 900),
    "ode": ("ode", 900),
    "leaderboard": ("leaderboard", 900),
    "predictions": ("predictions", 1000),
}
WIDTH = 1280  # of a browser's window
FIGURE, TALLEST = 900, 1150  # pixels, at most; of a taller figure the upper part is shown


def main() -> None:
    """Makes the pictures of the runs that are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--chromium", default="chromium")
    arguments = parser.parse_args()
    PICTURES.mkdir(parents=True, exist_ok=True)
    for run in arguments.runs:
        for page, (name, height) in PAGES.items():
            file = run / f"{page}.html"
            if file.exists():
                save(screenshot(file, height, arguments.chromium), name, WIDTH)
                prefix = "" if page == "report" else f"{page}_"
                for figure in sorted((run / "figures").glob("*.png")):
                    if not figure.stem.endswith("_all_ood"):  # as those of the grid
                        save(Image.open(figure), f"{prefix}{figure.stem}", FIGURE)


def screenshot(page: Path, height: int, chromium: str) -> Image.Image:
    """The upper part of a page as a browser shows it."""
    with tempfile.TemporaryDirectory() as folder:
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
    picture.save(PICTURES / f"{name}.webp", quality=72, method=6)


if __name__ == "__main__":
    main()
