"""Makes the images of a plan, each once."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ood_lab.common.errors import UserError
from ood_lab.common.line_files import write_records
from ood_lab.lvlm.image_generation.orders import Generator, Order
from ood_lab.synthesis.image_batches import make_images

log = logging.getLogger(__name__)

#: The plan of all images, and the folder that they lie in.
PLAN, IMAGES = "plan.jsonl", "images"
SUFFIX = ".png"


def make(
    orders: Sequence[Order], generator: Generator, folder: Path, batch_size: int
) -> list[Order]:
    """Writes the plan, then every image that is not there yet.

    An image appears under its name when it is whole; a run that was killed makes no image twice
    that it had finished. The name of an image tells apart everything that its pixels follow from.

    Args:
        orders: all images.
        generator: makes them.
        folder: of the plan and of ``images/``.
        batch_size: images per call.

    Returns:
        The orders whose image is there; a generator may withhold some.

    Raises:
        UserError: two orders are the same, or the contents of the folder were made otherwise.
    """
    if len({order.file for order in orders}) < len(orders):
        raise UserError("two images of the plan are the same: give every one its own seed")
    _write_plan(orders, generator.made_with, folder)
    files = [file_of(order, folder) for order in orders]
    withheld = set(
        make_images(files, lambda rows: generator.images([orders[i] for i in rows]), batch_size)
    )
    if withheld:
        log.warning("the generator withheld %d of %d images", len(withheld), len(orders))
    return [order for place, order in enumerate(orders) if place not in withheld]


def file_of(order: Order, folder: Path) -> Path:
    """The image of an order."""
    return folder / IMAGES / f"{order.file}{SUFFIX}"


def _write_plan(orders: Sequence[Order], made_with: Mapping[str, Any], folder: Path) -> None:
    header = {"made_with": dict(made_with)}
    file = folder / PLAN
    if file.exists():
        first = file.read_text(encoding="utf-8").split("\n")[0]
        if json.loads(first) != json.loads(json.dumps(header)):
            raise UserError(
                f"'{folder}' holds images of another generator, or of other settings: choose "
                "another folder, or remove it"
            )
    write_records([header, *({"file": order.file, **asdict(order)} for order in orders)], file)
