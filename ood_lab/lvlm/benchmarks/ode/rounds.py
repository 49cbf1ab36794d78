"""Rounds: a run that continues an earlier one with other pairs, attributes or images."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd

from ood_lab.common.errors import UserError
from ood_lab.common.files import read_json, read_table
from ood_lab.lvlm.answers.judgements import FAILED, PARSED
from ood_lab.lvlm.benchmarks.ode.construction.concept_graph import merged, read_graphml
from ood_lab.lvlm.benchmarks.ode.construction.criteria import Pair
from ood_lab.lvlm.captions.caption_scoring import OF_NO, clusters_of
from ood_lab.lvlm.captions.question_kinds import GROUPS
from ood_lab.lvlm.parsers import NO
from ood_lab.lvlm.scoring.scored_results import POOLED
from ood_lab.lvlm.scoring.yes_no_scores import class_counts
from ood_lab.metrics.hallucination import CAPTION_METRICS, COUNTS, caption_metrics
from ood_lab.metrics.resampling.clustered_bootstrap import (
    Metrics,
    cluster_sums,
    resampled_sums,
)
from ood_lab.metrics.resampling.intervals import percentile_interval
from ood_lab.metrics.yes_no import yes_no_metrics
from ood_lab.schema.arrays import Ints

#: Groups of yes/no questions whose change is reported.
_GROUPS = ("existence", "attribute", "all")
#: Files that a run leaves for the next round.
PAIRS, CAPTIONS, JUDGED = "pairs.csv", "captions.parquet", "judged.parquet"


@dataclass(frozen=True)
class Round:
    """A finished run that the next one continues.

    Attributes:
        folder: of the run.
        number: from 1.
        lineage: hash of how it came about, and all rounds before it.
    """

    folder: Path
    number: int
    lineage: str

    @property
    def pairs(self) -> list[Pair]:
        """Pairs of this round and of all before it."""
        table = read_table(self.folder / PAIRS)
        rows = table[["first", "second", "kind"]].drop_duplicates().itertuples(index=False)
        return [Pair(str(a), str(b), "ee" if kind == "ee" else "ev") for a, b, kind in rows]

    def merged_with(self, graphs: Mapping[str, nx.Graph], same: bool) -> dict[str, nx.Graph]:
        """The graphs of this round and new ones together; frequencies add up.

        Args:
            graphs: by name.
            same: they come from the same annotations, and nothing is to be added.
        """
        if same:
            return dict(graphs)
        return {
            name: merged(read_graphml(self.folder / f"graph_{name}.graphml"), graph)
            for name, graph in graphs.items()
        }


def read_round(folder: Path) -> Round:
    """An earlier run of this task.

    Raises:
        UserError: it is none, or has not been scored.
    """
    manifest = folder / "manifest.json"
    about = read_json(manifest).get("ode", {}) if manifest.is_file() else {}
    if not (folder / PAIRS).is_file() or "lineage" not in about:
        raise UserError(f"task.previous={folder} is not a finished run of task=ode")
    return Round(folder, int(about["round"]), str(about["lineage"]))


def lineage(previous: Round | None, made_with: Sequence[str]) -> str:
    """First 16 hex digits of the hash of a round and of all before it.

    Args:
        previous: the round before it.
        made_with: hashes of its questions and concepts.
    """
    parent = previous.lineage if previous else ""
    text = json.dumps([parent, *made_with])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def change(
    previous: Round,
    captions: pd.DataFrame,
    judged: pd.DataFrame,
    splits: Sequence[str],
    *,
    draws: int = 1000,
    seed: int = 0,
) -> pd.DataFrame:
    """This round minus the one before, with 95% intervals.

    The images are other ones, so that both are resampled on their own.

    Returns:
        ``split, metric, before, after, change, ci_low, ci_high``; criteria that both have, and all
        of them pooled.
    """
    old_captions = read_table(previous.folder / CAPTIONS)
    old_judged = read_table(previous.folder / JUDGED)
    rng = np.random.default_rng(seed)
    both = [name for name in splits if name in set(old_captions["split"])]
    rows: list[dict[str, Any]] = []
    for split in [*both, POOLED]:
        parts = [_part(table, split, both) for table in (old_captions, captions)]
        sides = [("", CAPTION_METRICS, caption_metrics, [_caption_counts(part) for part in parts])]
        parts = [_part(table, split, both) for table in (old_judged, judged)]
        sides += [
            (f"{group}_", OF_NO, yes_no_metrics, [_answer_counts(part, group) for part in parts])
            for group in _GROUPS
        ]
        for group, names, metrics, counts in sides:
            if all(map(len, counts)):
                found = _change(counts, metrics, draws, rng)
                rows += [{"split": split, "metric": f"{group}{m}", **found[m]} for m in names]
    return pd.DataFrame(rows)


def _part(table: pd.DataFrame, split: str, both: Sequence[str]) -> pd.DataFrame:
    return table[table["split"].isin(both) if split == POOLED else table["split"] == split]


def _caption_counts(rows: pd.DataFrame) -> Ints:
    kept = rows[rows["status"] == PARSED]
    return cluster_sums(kept[list(COUNTS)].to_numpy(np.int64), clusters_of(kept))


def _answer_counts(rows: pd.DataFrame, group: str) -> Ints:
    kept = rows[rows["task"].isin(GROUPS[group]) & (rows["status"] != FAILED)]
    return cluster_sums(class_counts(kept, NO), clusters_of(kept))


def _change(
    counts: Sequence[Ints], metrics: Metrics, draws: int, rng: np.random.Generator
) -> dict[str, dict[str, float]]:
    """``before, after, change`` and its interval, by metric."""
    before, after = (metrics(each.sum(axis=0)) for each in counts)
    first, second = (metrics(resampled_sums(each, draws, rng)) for each in counts)
    found = {}
    for metric in before:
        ends = percentile_interval(second[metric] - first[metric], min(map(len, counts)))
        old, new, low, high = map(float, (before[metric], after[metric], *ends))
        found[metric] = {"before": old, "after": new, "change": new - old}
        found[metric] |= {"ci_low": low, "ci_high": high}
    return found
