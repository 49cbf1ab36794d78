"""All detectors over ID and OOD banks: scores, and the tidy table with intervals."""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pandas as pd
import torch
import torch.nn.functional as F
from rich.console import Console

from ood_lab.api.detector_settings import Chosen, chosen_detectors, explained, in_python
from ood_lab.api.equal_rows import shared_rows
from ood_lab.api.feature_banks import TARGETS, Features, banks_of
from ood_lab.api.feature_shift import shift_of
from ood_lab.common.errors import UserError
from ood_lab.common.files import write_csv, write_table
from ood_lab.data.datamodules.splits import ID_SPLITS, RESERVED
from ood_lab.detectors import Detector, unserved, unsuited
from ood_lab.detectors.base import COSTS, Detectors
from ood_lab.evaluation.detector_fitting import cut_at, memory_limit, score_banks
from ood_lab.evaluation.detector_results import DetectorResults
from ood_lab.evaluation.id_accuracy import Chance, other_order
from ood_lab.evaluation.near_copies import NearCopies, auroc_sentences, with_scenes
from ood_lab.evaluation.score_warnings import suspicious
from ood_lab.evaluation.shift.statistics_column import StatisticsColumn, statistics_of_sets
from ood_lab.features.bank import Banks, FeatureBank, other_network
from ood_lab.features.image_groups import group_count, with_groups
from ood_lab.metrics import CAUSE, VERDICT, Evaluation, PositiveClass, cause_results, map_of
from ood_lab.models.head_kind import OF_NETWORKS
from ood_lab.report.detection.detection_page import detection_blocks, write_report
from ood_lab.report.detection.detection_tables import main_table
from ood_lab.report.rendering.page import page_template
from ood_lab.report.rendering.prose import sentences
from ood_lab.report.rendering.terminal import print_blocks
from ood_lab.report.results_lookup import RunView
from ood_lab.report.verdict import WORDS, Verdict
from ood_lab.schema.image_groups import MADE_OF
from ood_lab.schema.image_statistics import PIXELS
from ood_lab.schema.label_codes import SEVERAL
from ood_lab.schema.results import write_results
from ood_lab.schema.run_record import RunRecord
from ood_lab.shift.dataset_shift import KIND as SHIFT

log = logging.getLogger(__name__)

#: Share of ``train`` that serves as ``val`` where none is given.
VAL_SHARE = 0.1


@dataclass(frozen=True)
class MeasuredShift:
    """Distribution shift between your data and the OOD datasets, and its causes.

    Attributes:
        datasets: a row per dataset, ``dataset, axis, metric, value, ci_low, ci_high, n``: the
            distance of its features, in held-out classes; empty without features.
        causes: a row per dataset and statistic of its images, the strongest first: ``auroc``
            against ID test with its interval, ``median, median_id, p_holm``; of the recommended
            detector ``matched_auroc``, among images alike in the strongest one. Empty where
            :func:`extract_features` did not know the pixels.
    """

    datasets: pd.DataFrame
    causes: pd.DataFrame


@dataclass(frozen=True, repr=False)
class EvaluationResult:
    """What :func:`evaluate` found; ``print`` shows the tables of a run, a notebook the first one.

    Attributes:
        scores: one row per image: ``dataset, index, label, pred`` and one column per detector,
            higher = more OOD.
        results: one row per number: ``detector, dataset, metric, value, ci_low, ci_high, n_id,
            n_ood`` and the other columns of ``results.csv`` (docs/reference/metrics.md).
        best: the detectors that are best, or not significantly worse, by set and metric.
        skipped: why a detector could not work here, by its name.
        detectors: the fitted detectors, by name.
        warnings: what to know before a number is believed; said when it is found, too.
        verdict: the shift of each dataset, and which detector detects it: ``recommended, best,
            detects, sentences, shift``. The shift is that of the features, in held-out classes.
    """

    scores: pd.DataFrame
    results: pd.DataFrame
    best: pd.DataFrame
    skipped: dict[str, str]
    detectors: dict[str, Detector]
    warnings: list[str] = field(default_factory=list)
    verdict: Verdict = field(default_factory=lambda: Verdict(VERDICT.table([], model="", seed=0)))

    def __repr__(self) -> str:
        """One line; the tables are those of ``print``."""
        sets = self.results["dataset"].dropna().nunique()
        names = ", ".join(self.detectors)
        return f"EvaluationResult({names}; {sets} OOD sets; print() shows the tables)"

    def _repr_html_(self) -> str:
        """The table of detectors and OOD sets, with its warnings above."""
        page: str = page_template("outcome.html.j2").render(
            table=main_table(self._view),
            sentence=self._view.fpr95,
            warnings=self.warnings,
            refused=self.skipped,
        )
        return page

    @property
    def shift(self) -> MeasuredShift:
        """The shift of each dataset, and its causes."""
        return MeasuredShift(self.verdict.shift, self.verdict.causes)

    @property
    def _view(self) -> RunView:
        detectors = self.detectors.items()
        record = RunRecord(
            detectors={n: {"input_type": d.input_type} | d.used_settings() for n, d in detectors},
            fpr95_positive=self.results.attrs["fpr95_positive"],
            refused=self.skipped,
            warnings=self.warnings,
        )
        return RunView(self.results, self.best, record, self.verdict)

    def save(self, folder: Path | str) -> Path:
        """Writes what a run writes: ``results`` and ``scores`` as CSV and Parquet, and ``best``.

        Returns:
            The folder, which is made if missing.
        """
        place = Path(folder)
        shift = SHIFT.table(self.verdict.shift, model=None, seed=self.results["seed"].iloc[0])
        for rows in (self.results, self.verdict.rows, shift, self.verdict.causes):
            if len(rows):
                write_results(rows, place)
        write_table(self.scores, place / "scores.parquet")
        write_csv(self.scores, place / "scores.csv")
        write_table(self.best, place / "significance_best.parquet")
        return place

    def report(self, path: Path | str = "report.html") -> Path:
        """Writes the page of a run, one HTML file with all figures inside.

        The figures are PNG and SVG files in ``<path without .html>_figures``.
        """
        page = Path(path)
        return write_report(page, self._view, self.scores, figures=f"{page.stem}_figures")

    def __str__(self) -> str:
        """The tables of a run, 80 columns wide, in the characters of the terminal."""
        console = Console(file=io.StringIO(), width=80, no_color=True)
        print_blocks([*detection_blocks(self._view), *self.verdict.blocks(every=True)], console)
        text: str = console.file.getvalue()  # type: ignore[attr-defined]
        code = getattr(sys.stdout, "encoding", None) or "utf-8"
        return text.encode(code, "replace").decode(code)


def evaluate(
    train: Features,
    test: Features,
    ood: Mapping[str, Features],
    *,
    val: Features | None = None,
    detectors: Chosen = "default",
    detector_preset: str = "auto",
    shift_order: Sequence[str] = (),
    groups: Mapping[str, Sequence[str]] | None = None,
    fpr95_positive: PositiveClass = "ood",
    n_bootstrap: int = 1000,
    seed: int = 0,
    model: str = "model",
) -> EvaluationResult:
    """Fits the detectors on ID features and scores ID test against every OOD set.

    Features are banks, or arrays: ``x [N, D]``, or ``(x, labels)``. Without banks the head is a
    linear one that is fitted on ``train``; without labels there is none, and the detectors that
    read nothing else are scored. Where no bank has groups, images that look like scenes count as
    such, see :func:`~ood_lab.neighbours.near_copies`.

    Args:
        train: what most detectors are fitted on.
        test: ID test.
        ood: the OOD sets, by name.
        val: what the others are fitted on; None = a tenth of ``train``, drawn by ``seed``, which
            the detectors of ``train`` then do not see.
        detectors: ``default``, ``all``, names of ``conf/detector``, or detectors of your own by
            name. Those that need a column that the banks do not have are skipped, with the reason.
        detector_preset: ``auto`` (settings from the number of images), ``openood`` or ``paper``.
        shift_order: OOD sets from the slightest to the largest shift, for DAD.
        groups: OOD sets by group (``{"near": [...], "far": [...]}``), for means and DAD.
        fpr95_positive: ``ood`` or ``id``: the positive class of the headline FPR95.
        n_bootstrap: resamples behind the intervals.
        seed: of the bootstrap, and of ``val``.
        model: name in the results table.

    Raises:
        UserError: no OOD set, a name of one that ID images have, an unknown detector, banks of
            different networks or heads, or no detector that works.
    """
    if not isinstance(ood, Mapping):
        raise UserError("ood holds the OOD sets by name: write `ood={'name': bank}`")
    if not ood:
        raise UserError("there is no OOD set: write `ood={'name': bank}`")
    for name in ood:
        if not isinstance(name, str) or not name.strip():
            raise UserError(
                f"ood: {name!r} is no name of a set: give a text, `ood={{'far': bank}}`"
            )
        if name in RESERVED:
            raise UserError(
                f"ood: an OOD set cannot be called '{name}', as ID images are: call it 'ood_{name}'"
            )
    given = {"test": test, **ood} | ({"val": val} if val is not None else {})
    of_train, sets = banks_of(train, given)
    every = _several_labels({"train": of_train, **sets})
    sets = with_groups(every)
    copies = NearCopies()
    if all(bank.groups is None for bank in every.values()):
        remedy = "groups=range(n) in features_from_arrays counts every image."
        sets, copies = with_scenes(sets, remedy)
    of_train = sets["train"]
    _check_one_head(sets)
    shared = list(shared_rows(ID_SPLITS, sets))
    if val is None:
        n = max(1, round(VAL_SHARE * group_count(of_train)))
        sets["val"], sets["train"] = cut_at(of_train, n, seed)
    chosen = chosen_detectors(detectors, detector_preset)
    refused: dict[str, str] = {}
    usable = _with_columns(chosen, sets, ["test", *ood], refused)
    grouped = any(sets[name].groups is not None for name in ("test", *ood))
    parts = {name: _rows(name, sets[name], grouped) for name in ("test", *ood)}
    with explained(usable):
        in_words = partial(in_python, chosen=usable)
        scores, timing = score_banks(parts, sets, usable, refused, memory_limit(None), in_words)
    evaluation = Evaluation(
        scores
        if "own_classes" in of_train.gives and bool((sets["test"].labels >= 0).any())
        else scores.drop(columns="pred"),
        list(timing),
        seed=seed,
        shift_order=shift_order,
        groups=groups,
        fpr95_positive=fpr95_positive,
        n_bootstrap=n_bootstrap,
    )
    doubts = suspicious(evaluation, usable)
    lost, doubts = _doubts(sets["test"], doubts)
    costs = {name: COSTS.index(usable[name].cost) for name in timing}
    found = DetectorResults.of(evaluation, model, costs, lost)
    results = found.results
    if (targets := sets["test"].columns.get(TARGETS)) is not None:
        z, draws, attrs = sets["test"].logits.numpy(), n_bootstrap, results.attrs
        of_head = map_of(z, targets.numpy(), model, draws=draws, seed=seed)
        results = pd.concat([of_head, results], ignore_index=True)
        results.attrs = attrs
    of_copies = auroc_sentences(copies.auroc(scores, list(timing)), found.recommended)
    doubts = [*shared, *copies.sentences, *of_copies, *doubts]
    for doubt in doubts:
        log.warning(doubt)
    measured = {name: sets[name] for name in ood}
    remarks = sentences(WORDS, "head", of_train.kind, of_train.multilabel)
    shift = pd.DataFrame()
    if "features" in of_train.gives:
        shift, how = shift_of(of_train, sets["test"], measured, draws=n_bootstrap, seed=seed)
        shift = shift.assign(encoder=model)
        remarks += sentences(WORDS, "shift", how)
    evaluated = {name: sets[name] for name in parts}
    verdict = Verdict(
        found.verdict,
        shift,
        fpr95_positive,
        remarks=tuple(remarks),
        causes=_causes(
            evaluated, scores, found.recommended, model=model, draws=n_bootstrap, seed=seed
        ),
        lost=lost,
    )
    refused = {name: in_python(reason, chosen) for name, reason in refused.items()}
    fitted = {name: usable[name] for name in timing}
    return EvaluationResult(scores, results, found.best, refused, fitted, doubts, verdict)


def _causes(
    sets: Banks, scores: pd.DataFrame, detector: str | None, *, model: str, draws: int, seed: int
) -> pd.DataFrame:
    """What tells these sets from ID test; empty where the statistics of some are not known."""
    if not all(StatisticsColumn.key in bank.columns for bank in sets.values()):
        return CAUSE.table([], model=model, seed=seed)
    images = statistics_of_sets(sets)
    if MADE_OF in scores:
        keys = ["dataset", "index"]
        images = images.merge(scores[[*keys, MADE_OF]], on=keys, validate="one_to_one")
    return cause_results(
        images, list(PIXELS), scores, detector, model=model, draws=draws, seed=seed
    )


def _doubts(test: FeatureBank, doubts: list[str]) -> tuple[bool, list[str]]:
    """Whether the network is no better than chance, and what a run warns of: else ``doubts``."""
    known, classes = test.labels >= 0, test.num_classes
    if "own_classes" in test.gives and bool(known.any()):
        accuracy = float((test.predictions == test.labels)[known].double().mean())
        chance = Chance.of(test.labels, classes)
        names = list(map(str, range(classes)))
        if chance.reached(accuracy):
            order = other_order(test, names)
            return True, [
                f"ID accuracy is {accuracy:.1%}, no better than chance ({chance.words(names)}), so "
                "the scores of detectors mean nothing: "
                + (order or "are these the labels of test, in the order of the head?")
            ]
    return False, doubts


def _with_columns(
    detectors: Detectors, sets: Banks, evaluated: Sequence[str], refused: dict[str, str]
) -> dict[str, Detector]:
    """The detectors whose columns the banks have; the others are added to ``refused``."""
    usable = {}
    for name, detector in detectors.items():
        column = detector.extraction_hook
        needed = list(evaluated)
        gives = sets["test"].gives | OF_NETWORKS  # a column says by itself that it is missing
        reason = unserved(name, detector.reads, gives, f"this bank ({sets['test'].kind})")
        if reason := reason or unsuited(name, detector, sets["test"].multilabel):
            refused[name] = reason
            continue
        if column is not None and column.needed_for_fit and detector.fit_split:
            needed.append(detector.fit_split)
        lacking = [s for s in needed if column is not None and column.key not in sets[s].columns]
        if detector.second_pass_hook is not None:
            refused[name] = (
                "with these settings it needs a second forward pass after the fit: run eval.py "
                "(task=score, task=predict); cached features are not enough"
            )
        elif lacking:
            refused[name] = (
                "it needs the network during feature extraction: extract the features of "
                f"{', '.join(lacking)} with extract_features(..., detectors=['{name}'])"
            )
        else:
            usable[name] = detector
    if not usable:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in refused.items())
        raise UserError(f"no chosen detector works here. {reasons}")
    return usable


def _several_labels(sets: Banks) -> dict[str, FeatureBank]:
    """Where one set has several classes an image, the others have them too, one each or none."""
    if not any(bank.multilabel for bank in sets.values()):
        return dict(sets)
    several = {}
    for name, bank in sets.items():
        if not bank.multilabel and bool((bank.labels >= 0).all()):
            targets = F.one_hot(bank.labels, bank.classes).bool()
            labels = torch.full_like(bank.labels, SEVERAL)
            bank = replace(bank, labels=labels, columns={**bank.columns, TARGETS: targets})
        several[name] = bank
    return several


def _check_one_head(sets: Banks) -> None:
    reference = sets["train"]
    for name, bank in sets.items():
        if not len(bank):
            raise UserError(f"the features of {name} are empty")
        if other_network(bank.network, reference.network):
            raise UserError(
                f"the features of {name} and of train are from two networks, or from other weights "
                "of one: extract both with the same network"
            )
        own, of_train = (torch.cat([b.head_weight.T, b.head_bias[None]]) for b in (bank, reference))
        if own.shape != of_train.shape or not torch.allclose(own, of_train):
            raise UserError(f"the features of {name} have another head than those of train")
        widths = [(each.features.shape[1], each.num_classes) for each in (bank, reference)]
        if widths[0] != widths[1]:
            raise UserError(
                f"the set {name} has {widths[0][0]:,} features and {widths[0][1]:,} classes, "
                f"train has {widths[1][0]:,} and {widths[1][1]:,}"
            )


def _rows(name: str, bank: FeatureBank, grouped: bool) -> pd.DataFrame:
    columns = {"index": bank.index, "label": bank.labels, "pred": bank.predictions}
    rows = pd.DataFrame({"dataset": name, **{key: v.numpy() for key, v in columns.items()}})
    if grouped:
        of = rows["index"].astype(str) if bank.groups is None else bank.groups.numpy().astype(str)
        rows[MADE_OF] = (f"{name} " if bank.groups is None else "group ") + of.astype(object)
    return rows
