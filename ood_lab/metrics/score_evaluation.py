"""From a table of scores to point values and bootstrap draws of every OOD set and shift cell."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any

import numpy as np
import pandas as pd
from annotated_types import Interval
from numpy.typing import NDArray

from ood_lab.common.arguments import Count
from ood_lab.common.random_streams import Resampling
from ood_lab.metrics.ood import AuprMethod, PositiveClass, SortedScores
from ood_lab.metrics.record import (
    AUROC,
    FPR95,
    FPR95_ID_POSITIVE,
    OF_SETS,
    Metric,
    load_metrics,
)
from ood_lab.metrics.resampling.group_intervals import (
    PhotographGroups,
    group_ends,
    photographs,
    sample_size,
)
from ood_lab.metrics.resampling.intervals import ValueAndDraws
from ood_lab.metrics.resampling.stratified_bootstrap import drawn_metrics
from ood_lab.metrics.shift_metrics import (
    CellMean,
    CellScores,
    LevelCells,
    dad,
    split_by_level,
)
from ood_lab.schema.arrays import Floats
from ood_lab.schema.image_columns import GROUP, LEVELS

#: Images, or photographs, that a dataset needs to count in a mean.
FEWEST_OF_A_VERDICT = 10

#: Every draw holds a number of each detector, set and metric.
Draws = Annotated[int, Interval(ge=1, le=100_000)]
_HEADLINE: dict[PositiveClass, str] = {"ood": "fpr95_ood_positive", "id": "fpr95_id_positive"}
_AUPR_METHOD: dict[PositiveClass, AuprMethod] = {"ood": "trapezoid", "id": "average_precision"}


class Evaluation:
    """One model's scores, measured lazily and once.

    Args:
        scores: ``dataset, <detectors>`` and, where known, ``label, pred, semantic_level,
            covariate_level`` (-1 or NaN = none), ``path`` and ``made_of`` (see
            :mod:`ood_lab.metrics.resampling.group_intervals`). Every dataset but ``id_name`` and
            those of ``csid`` is an OOD set.
        detectors: columns of ``scores``, higher = more OOD.
        seed: of the bootstrap.
        id_name: the ID test set.
        csid: sets of ID classes with shifted covariates, which are ID with ``id_name`` (OpenOOD's
            full-spectrum evaluation, arXiv 2306.09301).
        shift_order: OOD sets from the least to the greatest shift.
        groups: OOD sets by the name of their group, from the least to the greatest shift; without
            a ``shift_order`` the order of the groups is what the DAD goes by.
        flagged: OOD sets that the check of the data has warned of; they do not count in means.
        fpr95_positive: the positive class of the headline FPR95; AUPR is by the trapezoid with
            ``ood``, average precision with ``id``.
        n_bootstrap: bootstrap draws.
        min_count: a cell with fewer samples is NaN, with its n.
        larger_semantic_from: lowest semantic level of the larger semantic shift; None = the upper
            half of the levels.
        extra: ``module.NAME`` of further metrics, see :mod:`ood_lab.metrics.record`.
        metrics: that are measured; fewer take less time. The headline FPR95 is one of them.

    Raises:
        ValueError: a missing column or set, no OOD set, or NaN scores; the message names it.
    """

    def __init__(
        self,
        scores: pd.DataFrame,
        detectors: Sequence[str],
        *,
        seed: int = 0,
        id_name: str = "test",
        csid: Sequence[str] = (),
        shift_order: Sequence[str] = (),
        groups: Mapping[str, Sequence[str]] | None = None,
        flagged: Collection[str] = (),
        fpr95_positive: PositiveClass = "ood",
        n_bootstrap: Draws = 1000,
        min_count: Count = 10,
        larger_semantic_from: Count | None = None,
        extra: Sequence[str] = (),
        metrics: Sequence[Metric] = OF_SETS,
    ) -> None:
        if fpr95_positive not in _HEADLINE:
            raise ValueError(f"fpr95_positive: expected 'ood' or 'id', got {fpr95_positive!r}")
        self.groups = {g: list(names) for g, names in (groups or {}).items() if names}
        grouped = [name for names in self.groups.values() for name in names]
        _check_scores(scores, detectors, (id_name, *csid), [*shift_order, *grouped])
        self.scores = scores
        self.detectors = list(detectors)
        # The place of each set in the declared order, 1 = least; sets of a group share theirs.
        of_groups = [*self.groups.values()] if len(self.groups) > 1 else []
        places = [[name] for name in shift_order] or of_groups
        self.shift_levels = {name: place for place, names in enumerate(places, 1) for name in names}
        self._flagged = frozenset(flagged)
        self.fpr95_positive = fpr95_positive
        self.metrics = (*metrics, *load_metrics(extra))
        self.headline_fpr = _HEADLINE[fpr95_positive]
        self.resampling, self.min_count = Resampling(n_bootstrap, seed), min_count
        self._aupr_method = _AUPR_METHOD[fpr95_positive]
        self.larger_semantic_from = larger_semantic_from
        self.csid = list(csid)
        self.test_rows = scores[scores["dataset"] == id_name]
        inside = scores["dataset"].isin([id_name, *csid])
        self.id_rows = scores[inside] if csid else self.test_rows
        names = scores.loc[~inside, "dataset"].unique()
        # A set keeps its place, so its draws, when another one is added behind it.
        ordered = list(shift_order) or grouped
        self.ood_names = ordered + [n for n in names if n not in ordered]

    @classmethod
    def of_numbers(
        cls, table: pd.DataFrame, columns: Sequence[str], resampling: Resampling
    ) -> Evaluation:
        """Of columns that are no scores of detectors: only AUROC, and FPR95 with ID positive."""
        return cls(
            table,
            columns,
            seed=resampling.seed,
            fpr95_positive="id",
            n_bootstrap=resampling.draws,
            metrics=(AUROC, FPR95_ID_POSITIVE),
        )

    @cached_property
    def n_id(self) -> int:
        """Number of ID samples, or of the groups that they belong to."""
        return sample_size(self.id_rows)

    @property
    def unit(self) -> str:
        """What is resampled: ``image``, or ``group`` where ID images belong together."""
        return "image" if self.n_id == len(self.id_rows) else GROUP

    @cached_property
    def id_matrix(self) -> Floats:
        """ID scores, ``[n, D]``."""
        return self.matrix(self.id_rows)

    def matrix(self, rows: pd.DataFrame) -> Floats:
        """Scores of all detectors, ``[rows, D]``."""
        return rows[self.detectors].to_numpy(dtype=np.float64)

    @cached_property
    def _places(self) -> Mapping[Any, Any]:
        return self.scores.groupby("dataset", observed=True).indices

    def rows_of(self, ood: str) -> pd.DataFrame:
        """Rows of one OOD set."""
        return self.scores.iloc[self._places[ood]]

    @cached_property
    def sets(self) -> CellScores:
        """Every OOD set as a whole."""
        return self._measured([self.rows_of(name) for name in self.ood_names])

    @property
    def n_of(self) -> dict[str, int]:
        """Samples of every OOD set, or the groups that they belong to."""
        return dict(zip(self.ood_names, self.sets.n_ood, strict=True))

    @cached_property
    def levels(self) -> list[LevelCells]:
        """The shift cells of every set that has levels; all of them share one bootstrap."""
        split = {name: split_by_level(self.rows_of(name)) for name in self.ood_names}
        parts = [part for _, rows in split.values() for part in rows]
        named = (cells.assign(dataset=name) for name, (cells, _) in split.items())
        # A set without levels is one cell, which only takes its part of the random numbers.
        cells = pd.concat(named, ignore_index=True).dropna(how="all", subset=[*LEVELS])
        if cells.empty:
            return []
        measured = self._measured(parts, self.min_count, list(cells.index))
        by_set = cells.groupby("dataset", sort=False)
        return [LevelCells(str(name), of_set, measured) for name, of_set in by_set]

    @property
    def named_metrics(self) -> list[Metric]:
        """The metrics of the results, with the headline FPR95 in its place."""
        return [self.metrics[0], FPR95, *self.metrics[1:]]

    @property
    def has_dad(self) -> bool:
        """True where two sets have a declared order."""
        return len(set(self.shift_levels.values())) >= 2

    @cached_property
    def whole_sets(self) -> list[str]:
        """The OOD sets that are evaluated as a whole, see :func:`sets_of_means`."""
        levelled = {of_set.dataset for of_set in self.levels}
        return sets_of_means(self.ood_names, self.shift_levels, levelled)

    @cached_property
    def left(self) -> dict[str, str]:
        """The OOD sets that do not count in a mean, and why: ``flagged`` or ``too_few``.

        None, where that leaves no set.
        """
        few = [name for name in self.whole_sets if self.n_of[name] < FEWEST_OF_A_VERDICT]
        left = {name: "flagged" for name in self.whole_sets if name in self._flagged}
        left |= dict.fromkeys(few, "too_few")
        return left if len(left) < len(self.whole_sets) else {}

    def counted(self, sets: Sequence[str]) -> list[str]:
        """The sets that count in a mean over some; all where none of them does."""
        return [name for name in sets if name not in self.left] or list(sets)

    @property
    def mean_sets(self) -> list[str]:
        """The OOD sets that the mean over all is over."""
        return self.counted(self.whole_sets)

    @cached_property
    def means(self) -> dict[str, list[str]]:
        """Sets by the name of their mean: ``mean`` of all, ``mean_<group>`` of a group."""
        everything = {"mean": self.mean_sets} if len(self.whole_sets) > 1 else {}
        return everything | {f"mean_{group}": self.counted(s) for group, s in self.groups.items()}

    @property
    def comparisons(self) -> dict[tuple[str | None, str], list[str]]:
        """The sets that each number is of, by dataset and by what names of metrics begin with.

        The dataset is None for means over several.
        """
        means = {(None, f"{mean}_"): names for mean, names in self.means.items()}
        return {(ood, ""): [ood] for ood in self.ood_names} | means

    def mean(self, metric: str, sets: Sequence[str]) -> CellMean:
        """Plain mean of a metric over OOD sets; of one set, with its own interval."""
        members = np.array([self.ood_names.index(name) for name in sets], dtype=np.int64)
        if len(members) == 1:
            return self.sets.cell(metric, members[0])
        return self.sets.mean(metric, members)

    def dad(self) -> ValueAndDraws:
        """DAD of every detector over the headline FPR95, ``[D]`` and ``[D, B]``."""
        sets = [[name] for name in self.shift_levels]
        return self._dad(sets, list(self.shift_levels.values()))

    def dad_of_means(self) -> ValueAndDraws:
        """DAD over the mean headline FPR95 of every group, ``[D]`` and ``[D, B]``."""
        return self._dad(self.groups.values())

    def _dad(
        self, sets: Iterable[Sequence[str]], levels: Sequence[int] | None = None
    ) -> ValueAndDraws:
        means = [self.mean("fpr95", names) for names in sets]
        values, draws = (dad(np.stack([mean[k] for mean in means]), levels) for k in (0, 1))
        return values, draws

    def as_set(self, rows: pd.Series) -> CellScores:
        """Metrics of other rows, as one set."""
        return self._measured([self.scores[rows]])

    def made_of(self, *parts: pd.DataFrame) -> list[NDArray[np.object_]] | None:
        """The photographs of ID and of these rows in turn; None where no two rows are of one."""
        rows = [self.id_rows, *parts]
        names = photographs(pd.concat(rows))
        if names is None or len(set(names)) == len(names):
            return None
        return np.split(names, np.cumsum([*map(len, rows)])[:-1])

    def _measured(
        self,
        parts: list[pd.DataFrame],
        min_count: int = 1,
        wanted: Sequence[int] | None = None,
    ) -> CellScores:
        """Metrics of groups of rows, of which some may only take part in the bootstrap."""
        blocks = [self.matrix(part) for part in parts]
        enough = [g for g, block in enumerate(blocks) if len(block) >= min_count]
        kept = enough if wanted is None else [g for g in enough if g in wanted]
        made_of = self.made_of(*(parts[g] for g in enough))
        copies = None if made_of is None else PhotographGroups.of(made_of)
        drawn = drawn_metrics(
            self.id_matrix,
            [blocks[g] for g in enough],
            resampling=self.resampling,
            aupr_method=self._aupr_method,
            metrics=self.metrics,
            copies=copies,
            wanted=[enough.index(g) for g in kept],
        )
        inside = np.sort(self.id_matrix, axis=0).T
        outside = {g: np.sort(blocks[g], axis=0).T for g in kept}
        pairs = {g: list(map(SortedScores, inside, of_group)) for g, of_group in outside.items()}
        shape = (len(self.detectors), len(blocks))
        n_ood = [len(block) for block in blocks]
        if copies is not None:
            for g, n in zip(enough, copies.n[1:], strict=True):
                n_ood[g] = n
        measured = CellScores(self.n_id, n_ood, self.headline_fpr)
        for metric in self.metrics:
            values, ends = np.full(shape, np.nan), np.full((2, *shape), np.nan)
            draws = np.full((*shape, self.resampling.draws), np.nan)
            draws[:, kept] = drawn[metric.name]
            for g in kept:
                values[:, g] = [metric.value(pair, self._aupr_method) for pair in pairs[g]]
                sizes = (self.n_id, n_ood[g])
                ends[:, :, g] = group_ends(
                    metric.rule, values[:, g], draws[:, g], self.id_matrix, blocks[g], sizes
                )
            measured.by_metric[metric.name] = values, draws, ends
        measured.by_metric["fpr95"] = measured.by_metric[self.headline_fpr]
        return measured


def sets_of_means(
    names: Sequence[str], placed: Collection[str], levelled: Collection[str]
) -> list[str]:
    """The OOD sets that are evaluated as a whole, wherever one is shown.

    Those with a declared place, and those without levels; all where that leaves none. A set that
    only serves a grid of levels is cut by them: as a whole it is a mixture of shifts.

    Args:
        names: the OOD sets.
        placed: those with a place in the shift order, or in an order of groups.
        levelled: those with levels.
    """
    return [n for n in names if n in placed or n not in levelled] or list(names)


def _check_scores(
    scores: pd.DataFrame, detectors: Sequence[str], inside: Sequence[str], named: Sequence[str]
) -> None:
    missing = [c for c in ("dataset", *detectors) if c not in scores]
    if missing or not len(detectors):
        raise ValueError(f"scores: no column {missing or 'named as a detector'}")
    present = scores["dataset"].unique().tolist()
    for name in inside:
        if name not in present:
            raise ValueError(f"scores: no rows of the ID set {name!r}; it has {present}")
    if len(present) <= len(inside):
        raise ValueError(f"scores: only {inside[0]!r}; OOD metrics need at least one OOD set")
    for name in named:
        if name not in present or name in inside:
            raise ValueError(
                f"shift_order, groups: no OOD set {name!r} in the scores; they have {present}"
            )
    for detector in detectors:
        bad = scores.loc[scores[detector].isna(), "dataset"]
        if len(bad):
            raise ValueError(
                f"detector {detector!r}: {len(bad)} scores are NaN, first in {bad.iloc[0]!r}"
            )
