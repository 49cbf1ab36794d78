"""Images with what is known of them, the subject of questions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import networkx as nx

from ood_lab.common.grouping import grouped
from ood_lab.common.line_files import write_records
from ood_lab.common.random_streams import text_stream
from ood_lab.lvlm.captions.caption_scoring import PAIR
from ood_lab.lvlm.concepts.concept_pairs import Kind
from ood_lab.lvlm.concepts.concepts import Attribute
from ood_lab.lvlm.concepts.hallucination_candidates import CANDIDATES, Ranking, neighbours
from ood_lab.lvlm.image_generation.image_making import IMAGES, SUFFIX
from ood_lab.lvlm.image_generation.orders import Order


@dataclass(frozen=True)
class Picture:
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
    states: tuple[Attribute | None, Attribute | None] = (None, None)
    actions: tuple[Attribute | None, Attribute | None] = (None, None)
    hallu: tuple[str, ...] = ()
    meta: Mapping[str, Any] = field(default_factory=dict)
    numbers: bool = True


def write_pictures(pictures: Iterable[Picture], path: Path) -> None:
    """Writes one picture a line, whole or not at all."""
    write_records(map(vars, pictures), path)


def pictures_of(
    orders: Sequence[Order],
    graph: nx.Graph,
    ranking: Ranking = neighbours,
    detected: Mapping[str, Sequence[str]] | None = None,
) -> list[Picture]:
    """What is known of the images that are there.

    Args:
        orders: of the images.
        graph: T, see :mod:`ood_lab.lvlm.concepts.concept_graph`.
        ranking: of the candidates for hallucinations; what is seen is none.
        detected: by :attr:`Order.file`, what a detector sees in addition to the pair.
    """
    found = []
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
        found.append(
            Picture(
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
    return found


def balanced(pictures: Sequence[Picture], seed: int) -> list[Picture]:
    """As many pictures of every criterion as the rarest has, drawn at random; order is kept.

    Pictures of one scene in several styles stay or go together, and so do those of a pair that is
    shown in several origins.
    """
    scenes = [str(each.meta.get(PAIR, each.meta.get("scene", each.file))) for each in pictures]
    groups = grouped(zip((each.criterion for each in pictures), scenes, strict=True))
    different = {name: list(dict.fromkeys(names)) for name, names in groups.items()}
    least = min(map(len, different.values()), default=0)
    kept = {
        str(scene)
        for name, names in different.items()
        for scene in text_stream(seed, "balance", name).permutation(names)[:least]
    }
    return [each for each, scene in zip(pictures, scenes, strict=True) if scene in kept]
