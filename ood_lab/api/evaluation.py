"""All detectors over ID and OOD banks: scores, and the tidy table with intervals."""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import torch.nn.functional as F
from rich.console import Console
from torch import Tensor

from ood_lab.api.detector_settings import (
    Chosen,
    chosen_detectors,
    default_grids,
    explained,
    in_python,
)
from ood_lab.api.feature_banks import TARGETS, Features, banks_of
from ood_lab.api.loader_checks import shared_rows
from ood_lab.common.arguments import check_values
from ood_lab.common.errors import UserError
from ood_lab.common.files import write_csv
from ood_lab.common.hints import check_known
from ood_lab.common.random_streams import Resampling
from ood_lab.data.dataset import ID_SPLITS, RESERVED
from ood_lab.detectors import Detector, named, unserved, unsuited
from ood_lab.detectors.base import Detectors, Reasons
from ood_lab.evaluation.detector_fitting import bank_rows, cut_at
from ood_lab.evaluation.detector_tuning import OUTLIERS, Grid, Tuning
from ood_lab.evaluation.id_accuracy import accuracy_warnings, check_id_accuracy
from ood_lab.evaluation.near_copies import NearCopies, with_scenes
from ood_lab.evaluation.pipeline import EvaluationOutcome, MethodScores, ScoringInput
from ood_lab.evaluation.published.verification import Verification, numbers_of, verify
from ood_lab.evaluation.shift.shift_rulers import neighbour_of, ruler_note, why_no_class
from ood_lab.evaluation.shift.statistics_column import StatisticsColumn, statistics_of_sets
from ood_lab.evaluation.split_features import split_by_reason
from ood_lab.features.bank import Banks, FeatureBank, other_network
from ood_lab.features.image_groups import group_count, with_groups
from ood_lab.metrics import CAUSE, Evaluation, PositiveClass, map_of
from ood_lab.models.head_kind import OF_NETWORKS
from ood_lab.report.detection.detection_page import detection_blocks, write_report
from ood_lab.report.detection.detection_tables import main_table
from ood_lab.report.rendering.prose import load_template
from ood_lab.report.rendering.terminal import print_blocks
from ood_lab.schema.image_columns import CLASS_UNITS, MADE_OF, SEVERAL
from ood_lab.schema.results import CORE
from ood_lab.schema.run_record import Facts, RunRecord
from ood_lab.shift import Ruler, Sample, ShiftMeter, read_ruler, undecomposed
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


class EvaluationResult(EvaluationOutcome):
    """What :func:`evaluate` found; ``print`` shows the tables of a run, a notebook the first one.

    Its attributes are those of :class:`~ood_lab.evaluation.pipeline.EvaluationOutcome`, of which
    these are the first: ``scores, results, best, detectors, verdict`` (``recommended, best,
    detects, sentences, shift``). The shift is that of the features, in held-out classes.
    """

    def __repr__(self) -> str:
        """One line; the tables are those of ``print``."""
        sets = self.results["dataset"].dropna().nunique()
        names = ", ".join(self.detectors)
        return f"EvaluationResult({names}; {sets} OOD sets; print() shows the tables)"

    def _repr_html_(self) -> str:
        """The table of detectors and OOD sets, with its warnings above."""
        return load_template("rendering/outcome.html.j2").render(
            table=main_table(self.view),
            sentence=self.view.fpr95,
            warnings=self.warnings,
            refused=self.skipped,
        )

    @property
    def skipped(self) -> Reasons:
        """Why a detector could not work here, by its name."""
        return self.record.refused

    @property
    def warnings(self) -> list[str]:
        """What to know before a number is believed; logged, too."""
        return self.record.warnings

    @property
    def shift(self) -> MeasuredShift:
        """The shift of each dataset, and its causes."""
        causes = self.verdict.causes.reindex(columns=[*CORE, *CAUSE.keys])
        return MeasuredShift(self.verdict.shift, causes)

    def save(self, folder: Path | str) -> Path:
        """Writes what a run writes: results, scores and tests between detectors.

        Returns:
            The folder, which is made if missing.
        """
        place = Path(folder)
        self.write(place)
        write_csv(self.scores, place / "scores.csv")
        return place

    def report(self, path: Path | str = "report.html") -> Path:
        """Writes the page of a run, one HTML file with all figures inside.

        The figures are PNG and SVG files in ``<path without .html>_figures``.
        """
        page = Path(path)
        return write_report(page, self.view, self.scores, figures=f"{page.stem}_figures")

    def verify(self, row: str, dataset: str, references: str | Path | None = None) -> Verification:
        """Compares the numbers with published ones, as ``task=verify`` does.

        Args:
            row: see :func:`~ood_lab.evaluation.published.verification.verify`.
            dataset: name of the ID dataset, as the published protocol has it: ``cifar10``.
            references: folder of reference files; None = those that come with the package.
        """
        results, facts = numbers_of(self.everything, self.record, dataset)
        return verify(results, facts, row, references)

    def __str__(self) -> str:
        """The tables of a run, 80 columns wide, in the characters of the terminal."""
        console = Console(file=io.StringIO(), width=80, no_color=True)
        print_blocks([*detection_blocks(self.view), *self.verdict.blocks(full=True)], console)
        text = console.file.getvalue()  # type: ignore[attr-defined]
        code = sys.stdout.encoding or "utf-8"
        return text.encode(code, "replace").decode(code)


def evaluate(
    train: Features,
    test: Features,
    ood: Mapping[str, Features],
    *,
    val: Features | None = None,
    csid: Mapping[str, Features] | None = None,
    detectors: Chosen = "default",
    detector_preset: str = "auto",
    tuning: str = "none",
    tuning_ood: Mapping[str, Features] | None = None,
    tuning_grids: Mapping[str, Grid] | None = None,
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
        csid: sets that count as ID together with ``test`` (full spectrum), by name: ID classes
            under covariate shift.
        detectors: ``default``, ``all``, names of ``conf/detector``, or detectors of your own by
            name. Those that need a column that the banks do not have are skipped, with the reason.
        detector_preset: ``auto`` (settings from the number of images), ``openood`` or ``paper``.
        tuning: ``none``; ``id_only``: settings with the best AUROC of ``val`` against outliers made
            of its features; ``val_ood``: against ``tuning_ood``. Detectors with chosen settings are
            ``<name>_tuned``, scored in addition to the others.
        tuning_ood: OOD sets that settings are chosen on, which are not evaluated.
        tuning_grids: ``{detector: {setting: [value, ...]}}``; None = those of ``conf/detector``.
        shift_order: OOD sets from the slightest to the largest shift, for DAD.
        groups: OOD sets by group (``{"near": [...], "far": [...]}``), for means and DAD.
        fpr95_positive: ``ood`` or ``id``: the positive class of the headline FPR95.
        n_bootstrap: resamples behind the intervals.
        seed: of the bootstrap, of the tuning, and of ``val``.
        model: name in the results table.

    Raises:
        UserError: no OOD set, a name of one that ID images have, an unknown detector, banks of
            different networks or heads, a tuning that would see what is evaluated, or no detector
            that works.
    """
    csid, tuning_ood = csid or {}, tuning_ood or {}
    _check_names(ood, csid, tuning_ood)
    check_values(Evaluation, {"n_bootstrap": n_bootstrap}, "evaluate")
    of_val = {} if val is None else {"val": val}
    of_train, sets = banks_of(train, {"test": test, **csid, **ood, **tuning_ood, **of_val})
    banks = _several_labels({"train": of_train, **sets})
    _check_one_head(banks)
    sets, copies = with_groups(banks), NearCopies()
    if all(bank.groups is None for bank in banks.values()):
        remedy = "groups=range(n) in features_from_arrays counts every image."
        sets, copies = with_scenes(sets, remedy)
    of_train, of_test = sets["train"], sets["test"]
    shared = list(shared_rows([*ID_SPLITS, *csid], sets))
    if val is None:
        n = max(1, round(VAL_SHARE * group_count(of_train)))
        sets["val"], sets["train"] = cut_at(of_train, n, seed)
    chosen = chosen_detectors(detectors, detector_preset)
    selection = _tuning(tuning, list(tuning_ood), tuning_grids, chosen)
    selection.check_content(
        [*csid, *ood],
        lambda name, names: [*shared_rows([name], {n: sets[n] for n in (name, *names)})],
    )
    evaluated = ["test", *csid, *ood]
    usable, refused = _with_columns(chosen, sets, evaluated)
    grouped = any(sets[name].groups is not None for name in evaluated)
    rows = {name: _score_rows(name, sets[name], grouped) for name in evaluated}
    record = RunRecord(
        model=model,
        classes=list(map(str, range(of_test.classes))),
        head=str(of_train.kind),
        multilabel=of_train.multilabel,
        fpr95_positive=fpr95_positive,
        csid=list(csid),
        shift_order=list(shift_order),
        ood_groups={group: list(names) for group, names in (groups or {}).items()},
        warnings=[*shared, *copies.sentences],
    )
    if of_test.label_classes is None:
        record.id_accuracy = check_id_accuracy(of_test, record.classes)
    advice = "are these the labels of test, in the order of the head?"
    accuracy = accuracy_warnings(sets, sets["val"].labels, record, advice)
    resampling = Resampling(n_bootstrap, seed)
    shift = precision = None
    if "features" in of_train.gives:
        values, record.distance = shift_of(of_train, of_test, {n: sets[n] for n in ood}, resampling)
        shift = SHIFT.table(values.assign(encoder=model), model=None, seed=seed)
    if (targets := of_test.columns.get(TARGETS)) is not None:
        precision = map_of(of_test.logits.numpy(), targets.numpy(), model, resampling)
    inputs = ScoringInput(
        usable=usable,
        refused=refused,
        banks=sets,
        copies=copies,
        ood=list(ood),
        shift=shift,
        statistics=_statistics({name: sets[name] for name in evaluated}, rows),
    )
    with explained(usable):
        result = EvaluationResult.of(
            MethodScores.of(inputs, rows, selection, seed),
            inputs,
            record,
            metrics={"fpr95_positive": fpr95_positive, "n_bootstrap": n_bootstrap},
            seed=seed,
            model_seed=seed,
            accuracy=accuracy,
            id_map=precision,
        )
    record.refused = {name: in_python(reason, chosen) for name, reason in refused.items()}
    record.warnings = [in_python(warning, chosen) for warning in record.warnings]
    for warning in record.warnings:
        log.warning(warning)
    return result


def _check_names(
    ood: Mapping[str, Features], csid: Mapping[str, Features], tuning_ood: Mapping[str, Features]
) -> None:
    """Raises a :class:`UserError` where sets have no names, or two of them one."""
    if not isinstance(ood, Mapping) or not ood:
        raise UserError("there is no OOD set with a name: write `ood={'name': bank}`")
    places: dict[str, str] = {}
    for place, sets in {"ood": ood, "csid": csid, "tuning_ood": tuning_ood}.items():
        for name in sets:
            if not isinstance(name, str) or not name.strip():
                raise UserError(
                    f"{place}: {name!r} is no name of a set: give a text, `{place}={{'far': bank}}`"
                )
            if name in RESERVED:
                raise UserError(
                    f"{place}: an OOD set cannot be called '{name}', as ID images are: call it "
                    f"'ood_{name}'"
                )
            if name in places:
                raise UserError(f"'{name}' is in {places[name]} and in {place}: give two names")
            places[name] = place


def _tuning(
    mode: str, sets: Sequence[str], grids: Mapping[str, Grid] | None, chosen: Detectors
) -> Tuning:
    """How settings are chosen.

    Raises:
        UserError: an unknown mode or detector, or OOD sets that do not go with the mode.
    """
    check_known([mode], OUTLIERS, "tuning={name}")
    if (mode == "val_ood") != bool(sets):
        raise UserError(
            "tuning='val_ood' goes with tuning_ood={'name': features}: OOD sets that settings are "
            "chosen on, and that are not evaluated"
        )

    def build(name: str, **settings: Any) -> Detector:
        detector = chosen[name]
        return named({name: type(detector)(**detector.settings | settings)})[name]

    tuning = Tuning(mode, sets, default_grids(chosen) if grids is None else grids, build)
    with explained(chosen):
        tuning.check_grids(chosen)
    return tuning


def _statistics(sets: Banks, rows: Mapping[str, pd.DataFrame]) -> pd.DataFrame | None:
    """Statistics of the images; None where those of some set are not known."""
    if not all(StatisticsColumn.key in bank.columns for bank in sets.values()):
        return None
    images = statistics_of_sets(sets)
    if MADE_OF in rows["test"]:
        images[MADE_OF] = pd.concat([rows[name][MADE_OF] for name in sets], ignore_index=True)
    return images


def _with_columns(
    detectors: Detectors, sets: Banks, evaluated: Sequence[str]
) -> tuple[Detectors, Reasons]:
    """The detectors whose columns the banks have, and the reason for each of the others."""
    test = sets["test"]
    gives = test.gives | OF_NETWORKS  # a column says by itself that it is missing

    def reason(name: str, detector: Detector) -> str | None:
        column = detector.extraction_hook
        if text := unserved(name, detector.reads, gives, f"this bank ({test.kind})"):
            return text
        if text := unsuited(name, detector, test.multilabel):
            return text
        if column is None:
            return None
        needed = [*evaluated, *([detector.fit_split] if detector.fit_split else [])]
        lacking = ", ".join(split for split in needed if column.key not in sets[split].columns)
        if not lacking:
            return None
        return (
            "it needs the network during feature extraction: extract the features of "
            f"{lacking} with extract_features(..., detectors=['{name}'])"
        )

    return split_by_reason(detectors, reason)


def _several_labels(sets: Banks) -> Banks:
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
        of_bank, of_train = (
            torch.cat([b.head_weight.T, b.head_bias[None]]) for b in (bank, reference)
        )
        if of_bank.shape != of_train.shape or not torch.allclose(of_bank, of_train):
            raise UserError(f"the features of {name} have another head than those of train")
        widths = [(of_set.width, of_set.num_classes) for of_set in (bank, reference)]
        if widths[0] != widths[1]:
            raise UserError(
                f"the set {name} has {widths[0][0]:,} features and {widths[0][1]:,} classes, "
                f"train has {widths[1][0]:,} and {widths[1][1]:,}"
            )


def _score_rows(name: str, bank: FeatureBank, grouped: bool) -> pd.DataFrame:
    rows = bank_rows(name, bank)
    if grouped:
        of = rows["index"].astype(str) if bank.groups is None else bank.groups.numpy().astype(str)
        rows[MADE_OF] = (f"{name} " if bank.groups is None else "group ") + of.astype(object)
    return rows


def shift_of(
    train: FeatureBank, test: FeatureBank, ood: Banks, resampling: Resampling
) -> tuple[pd.DataFrame, Facts]:
    """Shift of datasets from ID, 1 = a class held out of ``train``.

    The cosine distance to the k-th nearest training image in the features that were given, k of
    :func:`~ood_lab.neighbours.neighbour_count`, 10 at most.

    Returns:
        ``dataset, axis, metric, value, ci_low, ci_high, n`` (see
        :func:`~ood_lab.shift.read_ruler`), and what a verdict says of it.
    """
    k = neighbour_of(train)
    banks = {"train": train, "test": test, **ood}
    unit = {name: F.normalize(b.features.float(), dim=1) for name, b in banks.items()}
    decomposition = undecomposed(unit["train"].shape[1], {}, k)
    meter = ShiftMeter(decomposition, unit["train"], k)

    def sample(distances: Tensor, bank: FeatureBank) -> Sample:
        groups = None if bank.groups is None else bank.groups.numpy().astype(object)
        return Sample(distances.double().cpu().numpy(), groups)

    missing = why_no_class(train.labels, test.labels, k)
    marks = [sample(meter.on_axis("semantic", unit["test"]), test)]
    if missing is None:
        labelled, shown = train.labels >= 0, test.labels >= 0
        meter_of_others = ShiftMeter(decomposition, unit["train"][labelled], k)
        classes = test.labels[shown], train.labels[labelled]
        of_test = test.rows(shown)
        held_out = meter_of_others.on_axis("semantic", unit["test"][shown], classes=classes)
        marks.append(sample(held_out, of_test))
        marks[0] = sample(meter.on_axis("semantic", unit["test"][shown]), of_test)
    ruler = Ruler(CLASS_UNITS, "distance", marks, missing)
    datasets = {
        name: sample(meter.on_axis("semantic", unit[name]), bank) for name, bank in ood.items()
    }
    reading = read_ruler(ruler, datasets, resampling)
    note = None if reading.reason else ruler_note(CLASS_UNITS, "distance", train.labels, k)
    of_ruler = {"metric": CLASS_UNITS, "reason": reading.reason, "note": note}
    columns = ["dataset", "axis", "metric", "value", "ci_low", "ci_high", "n"]
    return reading.values[columns], {"rulers": [of_ruler]}
