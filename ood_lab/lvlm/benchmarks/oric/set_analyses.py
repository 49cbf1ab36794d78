"""What sets the questions of one set apart from those of another; facts of every question."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ood_lab.common.arguments import Fields
from ood_lab.common.random_streams import Resampling
from ood_lab.lvlm.annotations import Annotations
from ood_lab.lvlm.annotations.image_contents import Contents, expected
from ood_lab.lvlm.answers.judgements import FAILED, SIZES
from ood_lab.lvlm.benchmarks.oric.question_sets import SUBSET, QuestionSets
from ood_lab.lvlm.image_text.clip import ClipSpace, Spaces
from ood_lab.lvlm.parsers import NO, YES
from ood_lab.lvlm.scoring.scored_results import columns_of
from ood_lab.lvlm.scoring.wording_scores import scored
from ood_lab.metrics.resampling.clustered_bootstrap import clustered, clustered_mean, shares
from ood_lab.metrics.resampling.intervals import Estimate, wilson_interval
from ood_lab.schema.arrays import Floats, positions
from ood_lab.schema.image_columns import LEVELS
from ood_lab.schema.results import NamedTables, Row

#: ``analysis`` of the rows of :func:`analyses_of`.
CLIP_SCORE, MIN_DISTANCE, P_CONTEXT = "clip_score", "min_distance", "p_context"
#: Of the shares of sizes, and the column of the tiers that each counts.
TIER_SHARES = {"tier_share": "tier", "coco_tier_share": "coco_tier"}
#: ``split`` of all annotated objects, which is no set of questions.
ANNOTATED = "annotated"
_COLUMNS = ["split", "analysis", "clip", "label", "key", "n", "value", "ci_low", "ci_high"]


def analyses_of(
    questions: pd.DataFrame, spaces: Spaces, first: str | None, resampling: Resampling
) -> pd.DataFrame:
    """Everything that is known of the sets without an answer, in long form.

    - ``tier_share``: share of the objects that are there, by tier of size (``key``); Wilson's
      interval; ``coco_tier_share`` by COCO's own edges, where these are others;
    - ``clip_score``: mean of ``100 cos(f_x, g_o)`` of image and text (no factor 2.5, no clamp);
    - ``p_context``: mean of ``P(object | other objects of the image)``;
    - ``min_distance``: of every class with questions of both answers, the least
      ``1 - cos`` of an image with and one without it (``key``); ``key`` "mean" is their mean.

    Means have bootstrap intervals that resample images, or classes for the last.

    Args:
        questions: ``split, row, object, label``, one row an item, and where known
            ``tier, coco_tier, cosine, p_context``.
        spaces: image features by the name of the CLIP.
        first: the CLIP whose texts gave ``cosine``, if any.
        resampling: of the bootstrap.

    Returns:
        ``split, analysis, clip, label, key, n, value, ci_low, ci_high``.
    """
    rows: list[Row] = []
    for split, part in questions.groupby("split", sort=False):
        results = [*_tier_shares(part), *_means(part, first, resampling)]
        for name, space in spaces.items():
            results += _distances(part, name, space, resampling)
        rows += [{"split": split, **row} for row in results]
    return pd.DataFrame(rows, columns=_COLUMNS)


def _tier_shares(part: pd.DataFrame) -> Iterator[Row]:
    for analysis, column in TIER_SHARES.items():
        if column not in part:
            continue
        there = part.loc[part["label"] == YES, column].dropna()
        for tier in TIERS if len(there) else ():
            share = float((there == tier).mean())
            results = Estimate(share, *wilson_interval(share, len(there)))
            about = {"analysis": analysis, "label": YES, "key": tier, "n": len(there)}
            yield about | columns_of(results)


def _means(part: pd.DataFrame, clip: str | None, resampling: Resampling) -> Iterator[Row]:
    means = ((CLIP_SCORE, "cosine", 100.0, clip), (P_CONTEXT, "p_context", 1.0, None))
    for label, rows in part.groupby("label", sort=False):
        for analysis, column, factor, of in means:
            values = rows.dropna(subset=column) if column in rows else rows.iloc[:0]
            if len(values):
                sums = values.groupby("row")[column].agg(["sum", "size"]).to_numpy(np.float64)
                of_images = clustered(sums, partial(shares, ["mean"]), resampling=resampling)
                mean = of_images.estimates()["mean"]
                results = Estimate(factor * mean.value, factor * mean.low, factor * mean.high)
                about = {"analysis": analysis, "clip": of, "label": label, "n": len(values)}
                yield about | columns_of(results)


def _distances(
    part: pd.DataFrame, name: str, space: ClipSpace, resampling: Resampling
) -> Iterator[Row]:
    """``min 1 - cos(f_x, f_x')`` over images ``x`` with and ``x'`` without a class, by class.

    A class without questions of both answers is skipped.
    """
    results = {}
    for category, rows in part.groupby("object", sort=True):
        there, absent = (rows.loc[rows["label"] == item, "row"].to_numpy() for item in (YES, NO))
        if len(there) and len(absent):
            cosines = space.images[there] @ space.images[absent].T
            results[str(category)] = 1, Estimate(float(1 - cosines.max()))
    if results:
        distances = [estimate.value for _, estimate in results.values()]
        of_all = clustered_mean(distances, resampling=resampling)
        results["mean"] = of_all.n, of_all.estimates()["mean"]
    for key, (n, estimate) in results.items():
        about = {"analysis": MIN_DISTANCE, "clip": name, "key": key, "n": n}
        yield about | columns_of(estimate)


def with_analyses(rows: Iterable[Row], analyses: pd.DataFrame) -> pd.DataFrame:
    """Rows of results with those of the analyses: ``part`` says of what of the set.

    Least distances of single classes are skipped, their mean is not.

    Args:
        rows: of a model's answers.
        analyses: see :func:`analyses_of`.
    """
    return pd.DataFrame([*rows, *_result_rows(analyses)]).astype(dict.fromkeys(SIZES, "Int64"))


def of_whole_sets(analyses: pd.DataFrame) -> pd.DataFrame:
    """Rows of :func:`analyses_of` that are not of a single class."""
    return analyses[(analyses["analysis"] != MIN_DISTANCE) | (analyses["key"] == "mean")]


def _result_rows(analyses: pd.DataFrame) -> Iterator[Row]:
    units = dict.fromkeys(TIER_SHARES, "object") | {MIN_DISTANCE: "class"}
    for row in of_whole_sets(analyses).to_dict("records"):
        label = {YES: "present", NO: "absent"}.get(row["label"])
        what = row["key"] if row["analysis"] in TIER_SHARES else label
        yield {
            "split": row["split"],
            "part": ", ".join(str(w) for w in (what, row["clip"]) if pd.notna(w)),
            "metric": row["analysis"],
            **{name: row[name] for name in ("value", "ci_low", "ci_high", "n")},
            "unit": units.get(row["analysis"], "image"),
        }


def known_of(
    sets: QuestionSets,
    contents: Contents | None,
    spaces: Spaces,
    edges: tuple[float, float],
    resampling: Resampling,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """What annotations and CLIPs say of questions.

    Args:
        sets: the questions.
        contents: of their images; None = there are no annotations.
        spaces: of the images, by the name of the CLIP; the texts of the first give ``cosine``.
        edges: of the tiers of size: sides of squares, pixels.
        resampling: of the bootstrap.

    Returns:
        All questions with ``split`` and what is known of each; and of whole sets, see
        :func:`~ood_lab.lvlm.benchmarks.oric.set_analyses.analyses_of`.
    """
    annotations, first, parts = sets.annotations, next(iter(spaces), None), []
    for split, rows in sets.sets.items():
        if annotations is not None and contents is not None:
            rows = with_facts(rows, annotations, contents, edges)
        if first is not None:
            space, places = spaces[first], rows["row"].to_numpy(np.int64)
            labels = space.labels[positions(sets.objects, rows["object"])]
            rows = rows.assign(cosine=np.einsum("nd,nd->n", space.images[places], labels))
        parts.append(rows.assign(split=split))
    table = pd.concat(parts, ignore_index=True)
    results = analyses_of(table, spaces, first, resampling=resampling)
    if contents is not None:
        sizes = pd.DataFrame(tier_columns(contents.areas, edges))
        shares = pd.DataFrame([*_tier_shares(sizes.assign(label=YES))], columns=_COLUMNS)
        results = pd.concat([results, shares.assign(split=ANNOTATED)], ignore_index=True)
    return table, results


def context_tables(judgements: pd.DataFrame, resampling: Resampling) -> NamedTables:
    """``context`` and ``tiers``, of what is known of the questions.

    Args:
        judgements: answers of all sets; those that are drawn from others have no curve.
        resampling: of the bootstrap.
    """
    if "p_context" in judgements:
        whole = judgements[~judgements["split"].str.endswith(SUBSET)]
        yield "context", curve_of(whole, resampling=resampling)
    if "tier" in judgements:
        yield "tiers", by_tier(judgements, resampling=resampling)


def curve_of(judgements: pd.DataFrame, resampling: Resampling) -> pd.DataFrame:
    """How often answers are right, by how expected the object is: ``P(object | context)``.

    The questions of all sets together are cut at quantiles of ``p_context`` into six bins, fewer
    where quantiles are equal, once for each right answer: what is present is missed more often
    where it is not expected, what is absent is seen more often where it is. Intervals resample
    images.

    Args:
        judgements: with ``p_context``; of sets that share no questions.
        resampling: of the bootstrap.

    Returns:
        ``split, truth, low, high, p_context`` (mean in the bin), ``n, n_images, accuracy, ci_low,
        ci_high``; ``split`` is "all" or the name of a set.
    """
    rows: list[Row] = []
    known = judgements[judgements["p_context"].notna() & (judgements["status"] != FAILED)]
    for truth, part in known.groupby("truth", sort=True):
        edges = np.unique(np.quantile(part["p_context"], np.linspace(0, 1, _BINS + 1)))
        place = np.searchsorted(edges[1:-1], part["p_context"], side="right")
        ends = {"low": edges[place], "high": edges[np.minimum(place + 1, len(edges) - 1)]}
        cut = part.assign(**ends)
        for split, table in [("all", cut), *cut.groupby("split", sort=False)]:
            for (low, high), cell in table.groupby(["low", "high"], sort=True):
                about = {"split": split, "truth": truth, "low": low, "high": high}
                rows.append(about | _accuracy(cell, resampling))
    columns = ["split", "truth", "low", "high", "p_context", "n", "n_images"]
    return pd.DataFrame(rows, columns=[*columns, "accuracy", "ci_low", "ci_high"])


def by_tier(judgements: pd.DataFrame, resampling: Resampling) -> pd.DataFrame:
    """Share of the objects that are seen (recall of "yes"), by tier of size and set.

    Returns:
        ``split, edges, tier, n, n_images, accuracy, ci_low, ci_high``; ``edges`` is ``tier`` or
        ``coco_tier``: the column that says which tier.
    """
    rows = [
        {"split": split, "edges": column, "tier": tier} | _accuracy(cell, resampling)
        for column in TIER_SHARES.values()
        if column in judgements
        for split, part in judgements[judgements["status"] != FAILED].groupby("split", sort=False)
        for tier in TIERS
        if len(cell := part[(part["truth"] == YES) & (part[column] == tier)])
    ]
    columns = ["split", "edges", "tier", "n", "n_images", "accuracy", "ci_low", "ci_high"]
    return pd.DataFrame(rows, columns=columns)


def _accuracy(rows: pd.DataFrame, resampling: Resampling) -> Fields:
    results = columns_of(scored(rows, resampling=resampling).estimates()["accuracy"])
    return {
        "p_context": rows["p_context"].mean(),
        "n": rows["question_id"].nunique(),
        "n_images": rows["pair_id"].nunique(),
        "accuracy": results.pop("value"),
        **results,
    }


#: Bins of a curve over the context.
_BINS = 6
#: Edges of squares, pixels: ORIC's, and COCO's own.
TIER_EDGES, COCO_EDGES = (24.0, 96.0), (32.0, 96.0)
TIERS = ("small", "medium", "large")


def with_facts(
    questions: pd.DataFrame,
    annotations: Annotations,
    contents: Contents,
    edges: tuple[float, float] = TIER_EDGES,
) -> pd.DataFrame:
    """The same rows with what annotations say of them.

    - ``p_context``: ``P(object | all other categories of the image)``, see
      :mod:`ood_lab.lvlm.annotations.image_contents`: low = incongruous;
    - ``area``, ``area_share`` and ``tier`` of an object that is there: ``small`` below
      ``edges[0]^2`` pixels, ``medium``, ``large`` from ``edges[1]^2`` on; ``coco_tier`` is the same
      by :data:`COCO_EDGES`, where these are others;
    - the known levels of shift of the image.

    Args:
        questions: ``row, object, label``.
        annotations: the images.
        contents: what is in them.
        edges: of the tiers.
    """
    rows = questions["row"].to_numpy(np.int64)
    codes = positions(contents.categories, questions["object"])
    chances = expected(contents.present, rows, contents.present[rows])
    every = np.arange(len(questions))
    images = annotations.images
    known = pd.Series(contents.areas, [contents.rows, contents.codes])
    area = np.asarray(known.reindex(pd.MultiIndex.from_arrays([rows, codes])), np.float64)
    area = np.where(questions["label"] == YES, area, np.nan)
    pixels = (images["width"] * images["height"]).to_numpy(np.float64)[rows]
    results = questions.assign(
        p_context=chances[every, codes],
        area=area,
        area_share=area / np.maximum(pixels, 1),
        **tier_columns(area, edges),
    )
    for name in LEVELS:
        if name in images:
            results[name] = images[name].to_numpy()[rows]
    return results


def tier_columns(area: Floats, edges: tuple[float, float]) -> dict[str, NDArray[np.object_]]:
    """Tier of each area in pixels, missing where the area is; by COCO's own edges, too."""
    results = {}
    for name, sides in (("tier", edges), ("coco_tier", COCO_EDGES)):
        if name == "tier" or tuple(edges) != COCO_EDGES:
            bounds = [-np.inf, *np.square(sides), np.inf]
            results[name] = np.asarray(pd.cut(area, bounds, right=False, labels=TIERS), object)
    return results
