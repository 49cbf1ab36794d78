"""What the passes over the images will take, before they are made, and what the default spares."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from lightning.pytorch.utilities.seed import isolate_rng

from ood_lab.common.english import counted, listed
from ood_lab.common.progress import duration
from ood_lab.detectors.base import COSTS, Detectors, Reasons
from ood_lab.evaluation.split_features import Extraction, PassPlan
from ood_lab.features.extraction_hooks import Columns
from ood_lab.features.extraction_pass import collate
from ood_lab.features.lightning_extractor import Extractor
from ood_lab.features.process_agreement import made_by_main
from ood_lab.models.image_tiles import tile_count

log = logging.getLogger(__name__)
#: Images that are timed at a time.
TIMED = 4
#: Seconds of forward passes below which nothing is timed or told.
WORTH_TELLING = 60.0
#: Pixels of an image up to which the default takes more than one forward pass on a CPU. ODIN takes
#: 3 to 5 of them an image; on photographs of 224 px it was below MSP, on those of 32 px among the
#: best (docs/results).
MOST_PIXELS = 128**2
#: Forward passes that a second pass is taken for: it is timed only once a fit has made its column.
_SECOND_PASS = 4
#: Share of time below which a smaller set is not worth a word.
_LESS = 0.9


@dataclass(frozen=True)
class PassCost:
    """Times of the passes for the chosen detectors and for smaller sets of them.

    Attributes:
        images: that have to pass.
        seconds: of each set, the chosen detectors (``chosen``) first.
        names: of the detectors in it.
    """

    images: int
    seconds: Mapping[str, float]
    names: Mapping[str, Sequence[str]]

    def sentence(self, chosen: str) -> str:
        """The times in one line; ``chosen`` says what the chosen detectors are."""
        last = self.seconds["chosen"]
        parts = [f"about {duration(last)} for {chosen}"]
        for name, seconds in self.seconds.items():
            if seconds < _LESS * last:
                without = [n for n in self.names["chosen"] if n not in self.names[name]]
                shown = listed(without) if len(without) <= 3 else counted(len(without), "detector")
                parts.append(f"{duration(seconds)} for those of detector={name}, without {shown}")
                last = seconds
        return f"passes over {counted(self.images, 'image')}: {'; '.join(parts)}"


def affordable(
    extraction: Extraction, detectors: Detectors, plan: PassPlan, by_default: bool
) -> tuple[Detectors, Reasons]:
    """Tells what the passes will take, and spares a CPU what nobody has asked for.

    Which detectors the default skips follows from images and device, never from the speed of
    the machine: the same command scores the same detectors.

    Args:
        extraction: will make the passes.
        detectors: that the network can serve.
        plan: of the sets.
        by_default: nobody has chosen them. On a CPU, those that need more than the forward pass
            are then left out where images have more than ``MOST_PIXELS`` pixels.

    Returns:
        The detectors to score, and the reason for each of the others.
    """
    kept, left_out, reason = dict(detectors), Reasons(), ""
    side = extraction.backbone.data_config["input_size"][1:]
    on_cpu = extraction.trainer.strategy.root_device.type == "cpu"
    if by_default and on_cpu and math.prod(side) > MOST_PIXELS:
        kept = {name: d for name, d in detectors.items() if d.cost != "again"}
        reason = (
            f"more than one forward pass for images of {side[1]} x {side[0]} pixels is slow on a "
            "CPU; detector=default scores it"
        )
        left_out = {name: reason for name in detectors if name not in kept}
    if extraction.trainer.global_rank == 0 and left_out:
        names = listed(left_out)
        log.warning("the default is detector=forward here, without %s: %s", names, reason)
    if kept and extraction.images_left(kept, plan):
        cost = made_by_main(extraction.trainer, lambda: _estimated(extraction, kept, plan))
        if cost is not None and extraction.trainer.global_rank == 0:
            of = "detector=default" if by_default and not left_out else "the chosen detectors"
            log.info(cost.sentence("detector=forward" if left_out else of))
    return kept, left_out


def _sets(detectors: Detectors) -> Iterator[tuple[str, Detectors]]:
    """The detectors, and those among them that need less and less."""
    yield "chosen", dict(detectors)
    last = len(detectors)
    for place in reversed(range(1, len(COSTS))):
        part = {name: d for name, d in detectors.items() if d.cost in COSTS[:place]}
        if 0 < len(part) < last:
            yield COSTS[place - 1], part
            last = len(part)


def _estimated(extraction: Extraction, detectors: Detectors, plan: PassPlan) -> PassCost | None:
    """The times of the sets; None where the forward passes are short."""
    left = extraction.images_left(detectors, plan)
    timer = _Timer(extraction, next(iter(left)))
    if sum(n for n, _ in left.values()) * timer.of(()) < WORTH_TELLING:
        return None
    seconds, names = {}, {}
    for name, part in _sets(detectors):
        of_set = extraction.images_left(part, plan)
        seconds[name] = sum(n * timer.of(columns) for n, columns in of_set.values())
        if any(d.second_pass_hook is not None for d in part.values()):
            scored = sum(len(extraction.data.splits[split]) for split in ("test", *plan.evaluated))
            seconds[name] += scored * _SECOND_PASS * timer.of(())
        names[name] = list(part)
    return PassCost(sum(n for n, _ in left.values()), seconds, names)


class _Timer:
    """Seconds that an image takes on all processes together, by what is computed of it."""

    def __init__(self, extraction: Extraction, split: str) -> None:
        self._trainer, self._backbone = extraction.trainer, extraction.backbone
        images = extraction.data.predict_dataset(split)
        start = time.perf_counter()
        timed = max(1, TIMED // tile_count(images.transform))
        self._image = collate([images[row] for row in range(min(timed, len(images)))])["image"]
        workers = extraction.data.loading.num_workers
        self._loading = 0.0 if workers else (time.perf_counter() - start) / len(self._image)
        self._known: dict[frozenset[str], float] = {}

    def of(self, columns: Columns) -> float:
        wanted = {column.key: column for column in columns}
        key = frozenset(wanted)
        if key not in self._known:
            self._known[key] = self._timed(list(wanted.values()))
        return (self._known[key] + self._loading) / self._trainer.world_size

    def _timed(self, columns: Columns) -> float:
        trainer, some = self._trainer, next(self._backbone.parameters(), None)
        home = torch.device("cpu") if some is None else some.device
        device = trainer.strategy.root_device
        extractor = Extractor(self._backbone, columns)
        try:
            self._backbone.to(device)
            with isolate_rng(), trainer.precision_plugin.forward_context():
                return extractor.seconds(self._image.to(device)) / len(self._image)
        except torch.OutOfMemoryError:
            return float("inf") if columns else 0.0  # the pass itself halves its chunks
        finally:
            self._backbone.to(home)
