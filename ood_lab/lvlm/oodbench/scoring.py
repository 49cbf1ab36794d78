"""The results of OODBench: metrics of every split, pooled, and over levels of shift."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ood_lab.axes import LEVELS
from ood_lab.lvlm.judged import FAILED, FOUND, PARSED, SIZES, UNPARSED, was_cut
from ood_lab.lvlm.oodbench.build import BAP_COUNTING, BAP_EXISTENCE, BAP_LOGIC, BAP_TASKS, YES_NO
from ood_lab.lvlm.oodbench.division import SPLITS
from ood_lab.lvlm.parsers import YES
from ood_lab.metrics.intervals import percentile_interval
from ood_lab.metrics.yes_no import outcome_counts, resampled_sums, yes_no_intervals

#: What becomes of an answer that cannot be read: its pair is left out, or it counts as wrong.
Unparsed = Literal["drop_pair", "wrong"]
WAYS: tuple[Unparsed, ...] = ("drop_pair", "wrong")
#: ``split`` of the whole benchmark: pooled counts, not a mean of the splits.
POOLED = "pooled"
BAP_METRICS = ("bap_existence", "bap_counting", "bap_logic")
COLUMNS = ["model", "split", *LEVELS, "unparsed", *SIZES, "n_pairs", *FOUND]
_COUNTS = ["tp", "fp", "tn", "fn"]


def results_of(
    judged: pd.DataFrame,
    model: str,
    *,
    draws: int = 1000,
    seed: int = 0,
    min_count: int = 10,
    gate_c_on_e: bool = False,
) -> pd.DataFrame:
    """Everything that is reported, in long form.

    Yes/no questions: the metrics of :mod:`ood_lab.metrics.yes_no` (positive class: "yes") of each
    split, of all splits pooled, and of every known level of shift and every cell of the two, with
    unparsed answers treated both ways. A failed request removes its pair either way. Intervals
    resample pairs. BAP: see :func:`bap_table`.

    Args:
        judged: see :func:`ood_lab.lvlm.judged.judge`.
        model: its name.
        draws: bootstrap resamples.
        seed: of the draws.
        min_count: levels and cells with fewer pairs are missing.
        gate_c_on_e: see :func:`bap_table`.

    Returns:
        ``model, split, semantic_level, covariate_level, unparsed, n_asked, n_unparsed, n_cut,
        n_failed, n_pairs, metric, value, ci_low, ci_high, seed``; values are shares, and missing
        where no answer could be read.
    """
    rows: list[dict[str, Any]] = []
    for way in WAYS:
        pairs = pair_table(judged, way)
        for place, part in _groups(pairs, min_count):
            rows += _metric_rows(part, place, way, draws, seed)
    rows += _bap_rows(judged, draws, seed, gate_c_on_e)
    return pd.DataFrame(rows).assign(model=model, seed=seed).reindex(columns=COLUMNS)


def pair_table(judged: pd.DataFrame, unparsed: Unparsed) -> pd.DataFrame:
    """Counts of every question pair.

    Args:
        judged: see :func:`ood_lab.lvlm.judged.judge`.
        unparsed: what becomes of an answer that cannot be read.

    Returns:
        One row per pair: ``pair_id, split, n_asked, n_unparsed, n_cut, n_failed, kept, tp, fp,
        tn, fn`` and the known levels; counts of a pair that is not ``kept`` are 0.
    """
    rows = judged[judged["task"] == YES_NO]
    truth = (rows["truth"] == YES).to_numpy()
    # An answer that counts as wrong is the opposite of the truth.
    wrong = (rows["status"] != PARSED).to_numpy()
    counts = outcome_counts(truth, np.where(wrong, ~truth, (rows["parsed"] == YES).to_numpy()))
    failed = (rows["status"] == FAILED).to_numpy()
    no_answer = (rows["status"] == UNPARSED).to_numpy()
    codes, names = pd.factorize(rows["pair_id"])
    columns = [np.ones(len(rows)), no_answer, was_cut(rows), failed, *counts.T]
    sums = np.column_stack([np.bincount(codes, c, len(names)) for c in columns]).astype(np.int64)
    first = rows.drop_duplicates("pair_id")
    n_unparsed, n_failed = (sums[:, SIZES.index(name)] for name in ("n_unparsed", "n_failed"))
    kept = (n_failed == 0) & ((unparsed == "wrong") | (n_unparsed == 0))
    sums[~kept, len(SIZES) :] = 0
    known = [name for name in ("split", "category", "image", *LEVELS) if name in first]
    table = pd.DataFrame(sums, columns=[*SIZES, *_COUNTS]).assign(pair_id=names, kept=kept)
    return table.join(first[known].reset_index(drop=True))


def bap_needs(gate_c_on_e: bool = False) -> dict[str, tuple[str, ...]]:
    """Kinds of questions of a sample that must all be answered right, by metric."""
    counting = (BAP_EXISTENCE, BAP_COUNTING) if gate_c_on_e else (BAP_COUNTING,)
    return {
        "bap_existence": (BAP_EXISTENCE,),
        "bap_counting": counting,
        "bap_logic": (*counting, BAP_LOGIC),
    }


def bap_table(judged: pd.DataFrame, gate_c_on_e: bool = False) -> pd.DataFrame:
    """What every BAP sample scores.

    ``E`` = the existence is right, ``C`` = the count is right, ``L`` = ``C`` and the comparison is
    right. With ``gate_c_on_e``, ``C`` needs ``E`` too, as the paper's prose (not its tables) has
    it. Samples with a failed request are not kept; an unparsed answer is wrong.

    Returns:
        One row per sample: ``sample, split, image, bap_existence, bap_counting, bap_logic`` (0 or
        1), ``n_asked, n_unparsed, n_cut, n_failed, kept``.
    """
    rows = judged[judged["task"].isin(BAP_TASKS)]
    if not len(rows):
        return pd.DataFrame(columns=["sample", "split", "image", *BAP_METRICS, *SIZES, "kept"])
    right = rows.pivot(index="pair_id", columns="task", values="correct").astype(bool)
    groups = rows.groupby("pair_id")
    table = groups[["split", "image"]].first()
    for metric, needs in bap_needs(gate_c_on_e).items():
        table[metric] = right[list(needs)].all(axis=1).astype(int)
    table["n_asked"] = groups.size()
    for name, found in (
        ("n_unparsed", rows["status"] == UNPARSED),
        ("n_cut", pd.Series(was_cut(rows), rows.index)),
        ("n_failed", rows["status"] == FAILED),
    ):
        table[name] = found.groupby(rows["pair_id"]).sum()
    table["kept"] = table["n_failed"] == 0
    return table.reset_index(names="sample")


def _groups(pairs: pd.DataFrame, min_count: int) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """Whole splits, then levels and cells of every split with pairs enough."""
    splits = [s for s in SPLITS if (pairs["split"] == s).any()]
    parts = {split: pairs[pairs["split"] == split] for split in splits} | {POOLED: pairs}
    for split, part in parts.items():
        yield {"split": split}, part
    known = [name for name in LEVELS if name in pairs]
    keys: list[list[str]] = [[name] for name in known] + ([known] if len(known) == 2 else [])
    for split, part in parts.items():
        for names in keys:
            for values, cell in part.groupby(names):
                if len(cell) >= min_count:
                    yield {"split": split, **dict(zip(names, values, strict=True))}, cell


def _metric_rows(
    pairs: pd.DataFrame, place: Mapping[str, Any], way: Unparsed, draws: int, seed: int
) -> list[dict[str, Any]]:
    kept = pairs[pairs["kept"]]
    sizes = {name: int(pairs[name].sum()) for name in SIZES} | {"n_pairs": len(kept)}
    # Where nothing was read, to be wrong everywhere would say more of the parser than of the model.
    found = yes_no_intervals(kept[_COUNTS].to_numpy() if _any_read(kept) else [], draws, seed)
    return [
        {**place, "unparsed": way, **sizes, "metric": metric, **_interval(*estimate)}
        for metric, estimate in found.items()
    ]


def _bap_rows(
    judged: pd.DataFrame, draws: int, seed: int, gate_c_on_e: bool
) -> list[dict[str, Any]]:
    samples = bap_table(judged, gate_c_on_e)
    if not len(samples):
        return []
    parts = {split: samples[samples["split"] == split] for split in SPLITS} | {POOLED: samples}
    rows: list[dict[str, Any]] = []
    for split, part in parts.items():
        kept = part[part["kept"]]
        sizes = {name: int(part[name].sum()) for name in SIZES} | {"n_pairs": len(kept)}
        values = _bap_values(kept, draws, seed) if len(kept) else {}
        if values and not _any_read(kept):
            values = dict.fromkeys(BAP_METRICS, (np.nan, np.nan, np.nan))
        rows += [
            {"split": split, "unparsed": "wrong", **sizes, "metric": metric, **_interval(*found)}
            for metric, found in values.items()
        ]
    return rows


def _bap_values(
    samples: pd.DataFrame, draws: int, seed: int
) -> dict[str, tuple[float, float, float]]:
    """``100 sum S / N`` of each metric with intervals that resample images."""
    codes, images = pd.factorize(samples["image"])
    values = samples[list(BAP_METRICS)].to_numpy(np.int64)
    clusters: NDArray[np.int64] = np.zeros((len(images), 4), np.int64)
    np.add.at(clusters, codes, np.column_stack([values, np.ones(len(samples), np.int64)]))
    drawn = resampled_sums(clusters, draws, np.random.default_rng(seed))
    total = clusters.sum(axis=0)
    found = {}
    for column, metric in enumerate(BAP_METRICS):
        low, high = percentile_interval(drawn[:, column] / drawn[:, 3], len(images))
        found[metric] = (float(total[column] / total[3]), float(low), float(high))
    return found


def _any_read(kept: pd.DataFrame) -> bool:
    return bool((kept["n_asked"] > kept["n_unparsed"]).any())


def _interval(value: float, low: float, high: float) -> dict[str, float]:
    return {"value": value, "ci_low": low, "ci_high": high}
