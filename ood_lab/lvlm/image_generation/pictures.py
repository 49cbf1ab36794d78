"""Images with what is known of them, the subject of questions."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import networkx as nx

from ood_lab.common.arguments import Settings
from ood_lab.common.errors import UserError
from ood_lab.common.grouping import distinct, grouped
from ood_lab.common.line_files import write_records
from ood_lab.common.random_streams import text_stream
from ood_lab.lvlm.captions.caption_scoring import PAIR
from ood_lab.lvlm.concepts.concepts import CANDIDATES, Kind, Ranking, neighbours
from ood_lab.lvlm.image_generation.compositions import Attributes, Generator, Order, Orders
from ood_lab.synthesis.image_batches import make_images

log = logging.getLogger(__name__)

#: The plan of all images, and the folder that they lie in.
PLAN, IMAGES = "plan.jsonl", "images"
SUFFIX = ".png"


def make(orders: Orders, generator: Generator, folder: Path, batch_size: int) -> Orders:
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
        UserError: the contents of the folder were made otherwise.
    """
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


def _write_plan(orders: Orders, made_with: Settings, folder: Path) -> None:
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


@dataclass(frozen=True)
class AnnotatedPicture:
    """One image.

    Attributes:
        file: relative to the folder of the list, or absolute.
        criterion: that chose its pair.
        kind: two entities, or an entity in an environment.
        truth: concepts that it shows, the pair first.
        states: of the pair; the true word is what the image shows.
        actions: of the pair.
        hallu: absent concepts that might be said to be there, the most tempting first.
        meta: what results are divided by: frequency, distance, levels of shift, round; a
            ``split`` in place of the criterion.
        numbers: there is one of the first concept, and questions ask how many.
    """

    file: str
    criterion: str
    kind: Kind
    truth: tuple[str, ...]
    states: Attributes = (None, None)
    actions: Attributes = (None, None)
    hallu: tuple[str, ...] = ()
    meta: Mapping[str, Any] = field(default_factory=dict)
    numbers: bool = True


#: In the order in which they are asked about.
AnnotatedPictures = Sequence[AnnotatedPicture]


def write_pictures(pictures: Iterable[AnnotatedPicture], path: Path) -> None:
    """Writes one picture a line, whole or not at all."""
    write_records(map(vars, pictures), path)


def pictures_of(
    orders: Orders,
    graph: nx.Graph,
    ranking: Ranking = neighbours,
    detected: Mapping[str, Sequence[str]] | None = None,
) -> AnnotatedPictures:
    """What is known of the images that are there.

    Args:
        orders: of the images.
        graph: T, see :mod:`ood_lab.lvlm.concepts.concepts`.
        ranking: of the candidates for hallucinations; what is seen is none.
        detected: by :attr:`Order.file`, what a detector sees in addition to the pair.
    """
    results = []
    for order in orders:
        composition = order.composition
        also = [name for name in order.also if name in graph]
        truth = (composition.first.name, composition.second.name, *also)
        seen = {*truth, *(detected or {}).get(order.file, ())}
        absent = (name for name in ranking(graph, truth) if name not in seen)
        pair = f"{composition.first.words}/{composition.second.words}"
        facts = {
            "scene": f"{composition.criterion}/{pair}/{order.number}",  # one in several styles
            "frequency": composition.frequency,
            "distance": composition.distance,
        }
        results.append(
            AnnotatedPicture(
                file=f"{IMAGES}/{order.file}{SUFFIX}",
                criterion=composition.criterion,
                kind=composition.kind,
                truth=truth,
                states=order.states,
                actions=order.actions,
                hallu=tuple(islice(absent, CANDIDATES)),
                meta={**facts, "prompt": order.prompt, **order.meta},
            )
        )
    return results


def balanced(pictures: AnnotatedPictures, seed: int) -> AnnotatedPictures:
    """As many pictures of every criterion as the rarest has, drawn at random; order is kept.

    Pictures of one scene in several styles stay or go together, and so do those of a pair that is
    shown in several origins.
    """
    scenes = [str(item.meta.get(PAIR, item.meta.get("scene", item.file))) for item in pictures]
    groups = grouped(zip((item.criterion for item in pictures), scenes, strict=True))
    different = {name: distinct(names) for name, names in groups.items()}
    least = min(map(len, different.values()), default=0)
    kept = {
        str(scene)
        for name, names in different.items()
        for scene in text_stream(seed, "balance", name).permutation(names)[:least]
    }
    return [item for item, scene in zip(pictures, scenes, strict=True) if scene in kept]
