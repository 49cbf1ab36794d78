"""Photographs of the pairs that were made, and how like natural images the made ones are."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from numpy.typing import ArrayLike
from PIL import Image, ImageOps

from ood_lab.clip import ClipModel
from ood_lab.common.arguments import Settings
from ood_lab.common.errors import UserError, reported_as
from ood_lab.common.file_records import text_sha256
from ood_lab.common.files import read_texts, write_csv, write_table
from ood_lab.common.grouping import grouped
from ood_lab.common.random_streams import Resampling, text_stream
from ood_lab.lvlm.annotations import Annotations
from ood_lab.lvlm.captions.caption_scoring import PAIR
from ood_lab.lvlm.concepts.concepts import concepts_of
from ood_lab.lvlm.image_generation.compositions import (
    Composition,
    Compositions,
    Generator,
    Order,
    Orders,
)
from ood_lab.lvlm.image_generation.pictures import AnnotatedPictures, file_of
from ood_lab.lvlm.image_text.base import ImageFeatures, image_features
from ood_lab.metrics.resampling.clustered_bootstrap import clustered_mean
from ood_lab.report.figures.layout import add_legend, panels
from ood_lab.report.figures.scatter import component_labels, components_of, draw_clouds, styles_of

log = logging.getLogger(__name__)

#: The set of made images; and what stands in place of a table for the images of ``annotations=``.
SYNTHETIC, ANNOTATIONS = "synthetic", "annotations"
_COLUMNS = ("file", "first", "second")
_PHOTOGRAPH = "photograph"


@dataclass(frozen=True)
class Photograph:
    """An image that is there already.

    Attributes:
        file: absolute.
        also: what it is known to show in addition to the pair.
        annotated: that it shows the pair is known, and no model has to confirm it.
    """

    file: Path
    also: tuple[str, ...] = ()
    annotated: bool = False


#: Photographs by the two concepts that they show, whichever comes first.
Photographs = Mapping[frozenset[str], Sequence[Photograph]]


def annotated_photographs(annotations: Annotations, pairs: Iterable[frozenset[str]]) -> Photographs:
    """Annotated images that show both concepts of a pair."""
    truth = concepts_of(annotations).truth
    files = [path.absolute() for path in annotations.paths.values()]
    return {
        pair: [
            Photograph(file, tuple(name for name in names if name not in pair), annotated=True)
            for file, names in zip(files, truth, strict=True)
            if pair <= set(names)
        ]
        for pair in pairs
    }


def listed_photographs(table: Path) -> Photographs:
    """Images of a table: ``file`` (from its folder), ``first``, ``second``, and ``also``.

    ``also``, which may be left out, has further concepts that the image shows, separated by ``;``.

    Raises:
        UserError: the table, a column or an image is missing.
    """
    rows = read_texts(table, _COLUMNS, hint=f": give {', '.join(_COLUMNS)}")
    results: dict[frozenset[str], list[Photograph]] = {}
    for number, row in enumerate(rows.to_dict("records"), 2):
        file = (table.absolute().parent / row["file"]).absolute()
        if not file.is_file():
            raise UserError(f"{table}, line {number}: there is no image '{file}'")
        also = tuple(name.strip() for name in row.get("also", "").split(";") if name.strip())
        results.setdefault(frozenset((row["first"], row["second"])), []).append(
            Photograph(file, also)
        )
    return results


@dataclass(frozen=True)
class WithPhotographs:
    """A generator whose plan also has photographs of the same pairs, as sets of their own.

    Only pairs that every origin has are planned, with as many photographs of each origin as images
    are made, or as there are.

    Args:
        generator: makes images.
        origins: photographs by the name of their set.
    """

    generator: Generator
    origins: Mapping[str, Photographs]

    @property
    def made_with(self) -> Settings:
        """What the generator says, and a digest of all photographs' names."""
        listed = {
            name: sorted(map(repr, results.items())) for name, results in self.origins.items()
        }
        digest = text_sha256(repr(sorted(listed.items())))
        return {**self.generator.made_with, "photographs": digest}

    def check(self) -> None:
        """See :class:`~ood_lab.lvlm.image_generation.compositions.Generator`."""
        self.generator.check()

    def drawable(self, graph: nx.Graph) -> nx.Graph:
        """See :class:`~ood_lab.lvlm.image_generation.compositions.Generator`."""
        return self.generator.drawable(graph)

    def plan(self, compositions: Compositions, seed: int) -> Orders:
        """The images of all origins.

        Raises:
            UserError: no pair is in all of them.
        """
        keys = {c.pair.key for c in compositions}
        shown = {
            name: {k for k in keys if results.get(k)} for name, results in self.origins.items()
        }
        common = keys.intersection(*shown.values())
        counts = ", ".join(f"{name} {len(pairs)}" for name, pairs in shown.items())
        if not common:
            raise UserError(
                f"none of the {len(keys)} pairs is photographed in every origin ({counts}): add "
                "photographs of the pairs in pairs.csv, or choose more pairs, "
                "task.construction.limit"
            )
        log.info("%d of %d pairs are in every origin (%s)", len(common), len(keys), counts)
        planned = self.generator.plan([c for c in compositions if c.pair.key in common], seed)
        orders = [
            replace(item, meta={**item.meta, **_about(item.composition, SYNTHETIC)})
            for item in planned
        ]
        of_pairs = grouped(
            ((o.composition.criterion, o.composition.pair), o.composition) for o in planned
        )
        for name, results in self.origins.items():
            for (criterion, pair), made in of_pairs.items():
                photographs = results[pair.key]
                one, other = sorted(pair.key)
                rng = text_stream(seed, "origin", name, criterion, one, other)
                sample = rng.permutation(len(photographs))[: len(made)]
                orders += [
                    _order(made[-1], number, name, photographs[int(place)])
                    for number, place in enumerate(sample)
                ]
        return orders

    def images(self, orders: Orders) -> Iterable[Image.Image | None]:
        """Photographs unchanged, and what the generator makes."""
        pictures = iter(self.generator.images([o for o in orders if _PHOTOGRAPH not in o.settings]))
        for order in orders:
            file = order.settings.get(_PHOTOGRAPH)
            yield next(pictures) if file is None else _opened(Path(file))


def _order(composition: Composition, number: int, name: str, photograph: Photograph) -> Order:
    return Order(
        composition=composition,
        seed=0,
        number=number,
        prompt=composition.prompt(),
        settings={_PHOTOGRAPH: str(photograph.file)},
        also=photograph.also,
        meta=_about(composition, name),
        annotated=photograph.annotated,
    )


def _about(composition: Composition, origin: str) -> dict[str, str]:
    pair = f"{composition.criterion}/{composition.first.name}/{composition.second.name}"
    return {"split": origin, "criterion": composition.criterion, PAIR: pair}


def _opened(file: Path) -> Image.Image:
    with (
        reported_as(f"the image '{file}' cannot be read: {{reason}}", OSError),
        Image.open(file) as image,
    ):
        return ImageOps.exif_transpose(image).convert("RGB")


def paired(pictures: AnnotatedPictures) -> AnnotatedPictures:
    """The pictures of pairs that every origin still has, as many of a pair in each of them.

    All have the same questions: about the two concepts, and the candidates that no picture of the
    pair shows. Attributes and numbers, which nobody knows of a photograph, have none.

    Raises:
        UserError: no pair is left in all origins.
    """
    origins = {str(item.meta["split"]) for item in pictures}
    kept: dict[str, tuple[str, ...]] = {}
    for of_pair in grouped((item.meta[PAIR], item) for item in pictures).values():
        results = grouped((str(item.meta["split"]), item) for item in of_pair)
        if set(results) != origins:
            continue
        chosen = [p for part in results.values() for p in part[: min(map(len, results.values()))]]
        absent = set.intersection(*(set(item.hallu) for item in chosen))
        common = tuple(name for name in chosen[0].hallu if name in absent)
        kept |= {item.file: common for item in chosen}
    if not kept:
        raise UserError(
            f"no pair has a picture left in each of {', '.join(sorted(origins))}: lower "
            "task.filter.min_conf, or give more photographs"
        )
    nothing = (None, None)
    return [
        replace(item, states=nothing, actions=nothing, numbers=False, hallu=kept[item.file])
        for item in pictures
        if item.file in kept
    ]


#: Name of the natural images among the sets.
NATURAL = "natural"
#: Natural images that the made ones are compared with.
_MOST_NATURAL = 500


def write_comparison(
    clip: ClipModel,
    annotations: Annotations,
    orders: Orders,
    folder: Path,
    resampling: Resampling,
) -> None:
    """Writes ``effectiveness.csv``, distances of made to natural images, and ``features.parquet``.

    Args:
        clip: gives the features.
        annotations: of the natural images, of which the first 500 are taken.
        orders: of the made ones, whose sets are their criteria, or what ``split`` says.
        folder: of the made images and of the files.
        resampling: see :func:`distances_to_natural`; images of one pair are resampled together.
    """
    natural = [*annotations.paths.values()][:_MOST_NATURAL]
    features = {NATURAL: image_features(clip, natural)}
    of_orders = image_features(clip, [file_of(order, folder) for order in orders])
    names = np.array([o.meta.get("split", o.composition.criterion) for o in orders])
    pairs = np.array([str(order.composition.pair.key) for order in orders])
    sets = dict.fromkeys(names.tolist())
    features |= {name: of_orders[names == name] for name in sets}
    together = {name: pairs[names == name] for name in sets}
    results = distances_to_natural(features, together, resampling=resampling)
    write_csv(results, folder / "effectiveness.csv")
    tables = [pd.DataFrame(rows).assign(dataset=name) for name, rows in features.items()]
    write_table(pd.concat(tables).rename(columns=str), folder / "features.parquet")


def distances_to_natural(
    features: Mapping[str, ImageFeatures],
    by: Mapping[str, ArrayLike],
    *,
    resampling: Resampling,
) -> pd.DataFrame:
    """The distance of every set to the natural images.

    ``distance``: mean over the images of ``1 - max cos`` to a natural one; for natural images to
    another one, with a bootstrap interval over the images of the set. ``ratio``: distance over the
    natural images' own; 1 = as near as they to each other.

    Args:
        features: normalised, ``[n, D]`` by name of the set, :data:`NATURAL` among them.
        by: by name of the set, ``[n]``: images that are resampled together; missing = each.
        resampling: of the bootstrap.

    Returns:
        ``dataset, n, distance, ci_low, ci_high, ratio``.
    """
    natural = features[NATURAL]
    rows = []
    for name, values in features.items():
        cosines = values @ natural.T
        if name == NATURAL:
            np.fill_diagonal(cosines, -np.inf)
        nearest = 1 - cosines.max(axis=1)
        results = clustered_mean(nearest, by.get(name), resampling=resampling)
        interval = results.estimates()["mean"]
        rows.append((name, len(values), float(nearest.mean()), interval.low, interval.high))
    table = pd.DataFrame(rows, columns=["dataset", "n", "distance", "ci_low", "ci_high"])
    reference = table.loc[table["dataset"] == NATURAL, "distance"].iloc[0]
    return table.assign(ratio=table["distance"] / reference if reference else np.nan)


def feature_clouds(
    features: Mapping[str, ImageFeatures], distances: pd.DataFrame, footer: str
) -> Figure | None:
    """Sets of images along the two main directions of all; None with fewer than two sets.

    Args:
        features: ``[n, D]`` by name of the set; ``natural`` is grey.
        distances: of the sets to the natural images, for the legend, see
            :func:`distances_to_natural`.
        footer: text below.
    """
    if len(features) < 2 or NATURAL not in features:
        return None
    clouds, shares = components_of(features)
    labels = {name: f"{name.replace('_', '-')} (n={len(clouds[name])})" for name in clouds}
    for row in distances.to_dict("records"):
        has_interval = pd.notna(row["ci_low"])
        ends = f" [{row['ci_low']:.3f}, {row['ci_high']:.3f}]" if has_interval else ""
        labels[row["dataset"]] += f", distance {row['distance']:.3f}{ends}"
    figure, (axes,) = panels([""], footer, height=3.2, extra=0.4, labels=component_labels(shares))
    draw_clouds(axes, clouds, styles_of(list(clouds), NATURAL), labels, units=False)
    add_legend(figure, [axes])
    return figure
