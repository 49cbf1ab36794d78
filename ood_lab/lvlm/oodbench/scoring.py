"""The results of OODBench: metrics of every split, pooled, and over levels of shift."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

from ood_lab.lvlm.judged import FAILED
from ood_lab.lvlm.oodbench.build import BAP_COUNTING, BAP_EXISTENCE, BAP_LOGIC, BAP_TASKS
from ood_lab.lvlm.oodbench.division import SPLITS
from ood_lab.lvlm.oodbench.uncertainty import uncertainty_rows
from ood_lab.lvlm.scored import POOLED, any_read, estimate_rows, question_kind
from ood_lab.lvlm.yes_no import Unparsed, yes_no_rows
from ood_lab.metrics.clustered import Estimate, clustered

KIND = question_kind("oodbench", "question pair", "unparsed")
BAP_METRICS = ("bap_existence", "bap_counting", "bap_logic")


def results_of(
    judged: pd.DataFrame,
    model: str,
    *,
    draws: int = 1000,
    seed: int = 0,
    min_count: int = 10,
    gate_c_on_e: bool = False,
    unparsed: Unparsed = "drop_pair",
) -> pd.DataFrame:
    """Everything that is reported, a table of :data:`KIND`.

    Yes/no questions: see :func:`~ood_lab.lvlm.yes_no.yes_no_rows`, and, where the model gives
    probabilities, :func:`~ood_lab.lvlm.oodbench.uncertainty.uncertainty_rows`. BAP: see
    :func:`bap_table`; intervals resample images.

    Args:
        judged: see :func:`ood_lab.lvlm.judged.judge`.
        model: its name.
        draws: bootstrap resamples.
        seed: of the draws.
        min_count: levels and cells with fewer pairs are missing.
        gate_c_on_e: see :func:`bap_table`.
        unparsed: the way of treating unparsed answers that comes first.
    """
    options: dict[str, Any] = {"draws": draws, "seed": seed}
    rows = yes_no_rows(judged, SPLITS, unparsed, min_count=min_count, **options)
    bap = _bap_rows(judged, gate_c_on_e, **options)
    doubts = uncertainty_rows(judged, **options)
    return KIND.table([*rows, *bap, *doubts], model=model, seed=seed)


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
        1) and ``kept``.
    """
    rows = judged[judged["task"].isin(BAP_TASKS)]
    if not len(rows):
        return pd.DataFrame(columns=["sample", "split", "image", *BAP_METRICS, "kept"])
    right = rows.pivot(index="pair_id", columns="task", values="correct").astype(bool)
    table = rows.groupby("pair_id")[["split", "image"]].first()
    for metric, needs in bap_needs(gate_c_on_e).items():
        table[metric] = right[list(needs)].all(axis=1).astype(int)
    table["kept"] = ~(rows["status"] == FAILED).groupby(rows["pair_id"]).any()
    return table.reset_index(names="sample")


def _bap_rows(
    judged: pd.DataFrame, gate_c_on_e: bool, draws: int, seed: int
) -> Iterator[dict[str, Any]]:
    asked = judged[judged["task"].isin(BAP_TASKS)]
    samples = bap_table(asked, gate_c_on_e)
    for split in [*SPLITS, POOLED]:
        part = samples if split == POOLED else samples[samples["split"] == split]
        rows = asked if split == POOLED else asked[asked["split"] == split]
        kept = part[part["kept"]]
        if not len(kept):
            continue
        counts = kept[list(BAP_METRICS)].assign(n=1).to_numpy("int64")
        found = clustered(counts, _shares, kept["image"], draws=draws, seed=seed)
        read = any_read(rows[rows["pair_id"].isin(kept["sample"])])
        values = found.estimates() if read else dict.fromkeys(BAP_METRICS, Estimate(float("nan")))
        place = {"split": split, "unit": "image"}
        yield from estimate_rows(place, values, found.n, rows)


def _shares(counts: Any) -> dict[str, Any]:
    """``sum S / N`` of each metric."""
    return {name: counts[..., k] / counts[..., -1] for k, name in enumerate(BAP_METRICS)}
