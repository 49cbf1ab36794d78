"""Scores images with an exported file: onnxruntime, numpy and pillow are all that it needs.

python -m ood_lab.deploy FILE.onnx IMAGES... [--csv TABLE.csv]

The file is one with its preprocessing, of ``task=predict task.onnx=true`` or
:func:`ood_lab.export_onnx`.
"""

from __future__ import annotations

import argparse
import csv
import glob
import json
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, ImageOps

#: Files that a folder is searched for.
SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff", ".webp", ".gif")


def read_rgb(path: str | os.PathLike[str], pixel_range: Sequence[float] | None = None) -> Any:
    """An image as in training, ``[H, W, 3] uint8``.

    The EXIF orientation is applied, transparency is composited on white, grey has three equal
    channels, and of more than 8 bits ``pixel_range`` (of the file; None = 0 to 65535) becomes black
    to white.

    Raises:
        ValueError: floating-point pixels without a range, or colours of 16 bits with one, of which
            Pillow keeps only the upper 8 bits.
    """
    with Image.open(path) as file:
        if pixel_range and ";16" in str(file.tile) and not file.mode.startswith("I"):
            raise ValueError("colours of 16 bits cannot be scaled here: save it with 8 bits")
        image = ImageOps.exif_transpose(file)
    if image.mode == "F" or image.mode.startswith("I"):
        if pixel_range is None and image.mode == "F":
            raise ValueError("floating-point pixels have no fixed range")
        low, high = pixel_range or (0, 65535)
        levels = (np.nan_to_num(np.asarray(image, np.float64), nan=low) - low) * 255 / (high - low)
        image = Image.fromarray(levels.round().clip(0, 255).astype(np.uint8))
    if image.has_transparency_data:
        paper = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(paper, image.convert("RGBA"))
    return np.asarray(image.convert("RGB"))


class Decision(NamedTuple):
    """Of one image; ``error`` says why it could not be read."""

    path: str
    p_value: float | None
    is_ood: bool | None
    score: float | None
    error: str = ""


class Scorer:
    """An exported file.

    Args:
        file: of a network and a detector, with its preprocessing.

    Raises:
        ValueError: it has no preprocessing.
    """

    def __init__(self, file: str | os.PathLike[str]) -> None:
        import onnxruntime

        providers = onnxruntime.get_available_providers()
        self._session = onnxruntime.InferenceSession(os.fspath(file), providers=providers)
        facts = self._session.get_modelmeta().custom_metadata_map
        if facts.get("preprocessing") != "true":
            raise ValueError(
                f"'{os.fspath(file)}' is without preprocessing: export it again with "
                "task.onnx=true, whose log says why it has none"
            )
        self.pixel_range: list[float] | None = json.loads(facts.get("pixel_range", "null"))

    def decide(self, path: str) -> Decision:
        """Reads and scores one image."""
        try:
            image = read_rgb(path, self.pixel_range)
        except Exception as error:  # readers of broken files raise almost anything
            return Decision(path, None, None, None, " ".join(str(error).split()))
        names = ["p_value", "is_ood", "score"]
        p_value, is_ood, score = self._session.run(names, {"image": image[None]})
        return Decision(path, float(p_value[0]), bool(is_ood[0]), float(score[0]))


def paths_of(images: Sequence[str]) -> Iterator[str]:
    """Files, and those of folders."""
    for address in images:
        if os.path.isdir(address):
            files = glob.glob(os.path.join(glob.escape(address), "**"), recursive=True)
            yield from sorted(file for file in files if file.lower().endswith(SUFFIXES))
        else:
            yield address


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints path, p-value and decision of every image.

    Raises:
        SystemExit: with 1 where an image could not be read, with 2 where nothing can be scored.
    """
    parser = argparse.ArgumentParser("ood-lab score", description="Scores images with FILE.onnx.")
    parser.add_argument("file", metavar="FILE.onnx")
    parser.add_argument("images", metavar="IMAGE", nargs="+", help="files or folders")
    parser.add_argument("--csv", metavar="TABLE.csv", help="write the table, too")
    options = parser.parse_args(arguments)
    try:
        scorer = Scorer(options.file)
    except Exception as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    decisions = []
    for path in paths_of(options.images):
        decision = scorer.decide(path)
        decisions.append(decision)
        words = "OOD" if decision.is_ood else "ID"
        result = decision.error or f"p = {decision.p_value:.3f}  {words}"
        print(f"{path}  {result}", flush=True)
    if options.csv:
        with open(options.csv, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(Decision._fields)
            writer.writerows(decisions)
    if any(decision.error for decision in decisions):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
