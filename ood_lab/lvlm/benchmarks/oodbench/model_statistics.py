"""OODBench's statistics over the finished runs of several models on the same questions."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from ood_lab.common.arguments import Count, Share
from ood_lab.common.english import counted
from ood_lab.common.errors import UserError
from ood_lab.common.files import packaged_table, read_config, read_table, write_csv, write_table
from ood_lab.common.grouping import without_keys
from ood_lab.common.hints import suggestion
from ood_lab.common.random_streams import Resampling
from ood_lab.lvlm.answers.answer_files import model_name
from ood_lab.lvlm.benchmark.contract import BenchmarkSession
from ood_lab.lvlm.benchmarks.oodbench.division import DIVISION, ID, read_ood_pairs
from ood_lab.lvlm.benchmarks.oodbench.page import SPLITS
from ood_lab.lvlm.benchmarks.oodbench.scoring import DATASET
from ood_lab.lvlm.benchmarks.oodbench.split_contents import without_rest
from ood_lab.lvlm.image_text.base import image_features, timm_features
from ood_lab.lvlm.image_text.foreign_images import refuse_foreign
from ood_lab.lvlm.pages.benchmark_page import defined
from ood_lab.lvlm.questions.question_files import YES_NO
from ood_lab.lvlm.scoring.answer_differences import (
    common_pairs,
    read_otherwise,
    wrong_answers,
)
from ood_lab.lvlm.scoring.yes_no_scores import Unparsed
from ood_lab.lvlm.statistics.figures import statistics_figures
from ood_lab.lvlm.statistics.mmd import equivalence
from ood_lab.lvlm.statistics.model_tables import (
    add_degradations,
    add_errors,
    add_hard,
)
from ood_lab.lvlm.statistics.ood_flags import (
    flag_figures,
    flag_sentences,
    flag_tables,
    flags_of_models,
)
from ood_lab.lvlm.statistics.statistic_tables import Findings
from ood_lab.lvlm.statistics.training_texts import add_overlap
from ood_lab.report.rendering.blocks import Section, Text
from ood_lab.report.rendering.drawing import optional
from ood_lab.report.rendering.metric_definitions import MISSING, p_text, percent
from ood_lab.report.rendering.page import Page
from ood_lab.report.rendering.prose import ALPHA, listing, noted, spread_of, values_of
from ood_lab.report.rendering.summary import show_blocks
from ood_lab.report.rendering.table import Cell, Head, Table
from ood_lab.schema.arrays import Bools, positions
from ood_lab.schema.finished_run import JUDGED, FinishedRun
from ood_lab.schema.results import Names, Row, Tables, write_results
from ood_lab.schema.run_record import RunRecord

#: Draws behind the tables.
DRAWS = "draws.parquet"
_SHOWN = packaged_table(__package__, "statistic_words.yaml")
#: Table, and what is above it; in this order.
TITLES: Names = _SHOWN["titles"]
_SHARES = frozenset(_SHOWN["shares"])


def statistics_sentences(results: Findings, splits: pd.Series, ood: str) -> Iterator[str]:
    """How many pairs there are, what accuracy loses from ID to OOD, and who errs.

    Args:
        results: with the tables ``degradation``, ``errors`` and ``wrong_by``.
        splits: of every question pair that all models answered.
        ood: the one that ID is compared with.
    """
    rows, errors = results.tables["degradation"], results.tables["errors"]
    models, sizes, name = counted(len(errors), "model"), splits.value_counts(), SPLITS[ood]
    yield (
        f"{models} answered {counted(len(splits), 'question pair')}, {sizes['id']:,} of them of ID "
        f"and {sizes[ood]:,} of {name}."
    )
    rows = rows[rows["metric"] == "accuracy"]
    rows = rows.rename(columns={"model": "on", "low": "ci_low", "high": "ci_high"})
    lost = values_of(rows, True, " points", "for")
    lower = listing(list(rows.loc[rows["p"] < ALPHA, "on"]) or ["no model"])
    yield (
        f"Accuracy on ID minus that on {name} is {noted(lost)}; it is "
        f"significantly above zero for {lower} (a one-sided test of each)."
    )
    wrong = results.tables["wrong_by"]["at_least"]
    said = f"Of the {name} questions, {spread_of(errors['share'], 1)}% are answered wrongly"
    if len(errors) > 1:
        said += (
            f", depending on the model; {percent(wrong.iloc[1])}% by at least one of them, "
            f"{percent(wrong.iloc[-1])}% by all"
        )
    yield f"{said}."


def statistics_tables(results: Findings) -> list[Table]:
    """The tables, by the name of their file, as people read them; see :data:`TITLES`."""
    tables: list[Table] = []
    for name, title in TITLES.items():
        if name not in results.tables:
            continue
        rows = results.tables[name]
        cells = [[_cell(name, str(key), row) for key in rows] for row in rows.to_dict("records")]
        # The texts before the first number say what a row is: a pair of models, or a metric.
        texts = [all(isinstance(value, str) for value in rows[column]) for column in rows]
        names = max(1, [*texts, False].index(False))
        heads = [Head(_words(str(head))) for head in rows]
        table = Table(title, heads, cells, names=names, notes=results.notes.get(name, ()))
        tables.append(table)
    return tables


def _cell(table: str, key: str, row: Row) -> Cell:
    """What people read in the column ``key`` of a row, and what it is sorted by."""
    value = row[key]
    if key in ("quantity", "metric"):
        return Cell(_words(value), value)
    if isinstance(value, str):
        return Cell(SPLITS.get(value, value) if key == "samples" else value, value)
    if isinstance(value, tuple):
        return Cell(" and ".join(f"{size:,}" for size in value), float(value[0]))
    if math.isnan(value):
        return Cell(MISSING)
    what = str(row["quantity"]) if key == "value" and "quantity" in row else key
    return Cell(_number(value, what, what in _SHARES and table != "mmd"), float(value))


def _number(value: Any, what: str, is_share: bool) -> str:
    """A number, which is shown as what it is one of."""
    if isinstance(value, (bool, np.bool_)):
        return "yes" if value else "no"
    if isinstance(value, (int, np.integer)):
        return f"{value:,}"
    if what == "p" or what.endswith("_p"):
        return p_text(value)
    if what in ("pairs", "shared"):
        return f"{value:,.0f}"
    if what == "variance":
        return f"{1e4 * value:.1f}"
    if is_share:
        return f"{100 * value:.1f}"
    return f"{value:.2e}" if 0 < abs(value) < 1e-3 else f"{value:.3f}"


def _words(name: str) -> str:
    return str(_SHOWN["words"].get(name, name.replace("_", " ")))


log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class OODBenchStatistics:
    """Writes ``degradation.csv`` and, where their inputs are given, the other tables.

    ``signature.csv`` and ``tost.csv`` (``open``), ``hard.csv`` (``hard``), ``mmd.csv``
    (``train``), ``overlap.csv`` and ``screening.csv`` (``corpora``).

    ``errors.csv``, ``wrong_by.csv`` and ``errors_together.csv`` of the errors on ``split`` are
    always there, and ``draws.parquet`` with the draws behind all tables. Models are compared by
    ``task=benchmarks`` or ``task.against``. Of several models, and of ``divisions``,
    ``flags.csv``, ``flags_union.csv`` and ``results.*`` say what each flags as OOD, by its wrong
    answers and by its own division, and what they flag together.

    Args:
        runs: run folders of ``task=oodbench`` on the same questions, one per model.
        split: what ID is compared with, and whose errors overlap.
        divisions: runs that divided the same images, with ``image_text=[chat]`` for example.
        unparsed: see :func:`ood_lab.lvlm.scoring.yes_no_scores.pair_table`.
        draws: bootstrap resamples and permutations.
        open: names of the models whose degradations make the signature.
        eta_resample: see :func:`ood_lab.lvlm.statistics.degradation.signature_tost`.
        hard: runs of the same models on hard pairs, in the same order.
        train: a run that divided the training split by the same rule.
        encoder, encoder_weights: network of timm that MMD's features come from, and the file of
            its weights; None = ``clip=...``.
        mmd_draws: splits, permutations and resamples behind MMD's interval.
        corpora: a CSV with ``image`` and ``text`` of the training data of each model.
        epsilon: largest share of known pairs that is negligible.
        synonyms: see :func:`ood_lab.lvlm.statistics.training_texts.read_synonyms`; without them a
            text names a category only by its name and its plural.
        foreign_clip: take a CLIP that comes with the package for images that it knows nothing of.
        report: write the page, ``statistics.html``.

    Raises:
        UserError: runs of other questions, an unknown model, a run without what is needed, a CLIP
            that knows nothing of their images.
    """

    runs: Sequence[str]
    split: Literal["ood_s", "ood_h"]
    divisions: Sequence[str]
    unparsed: Unparsed
    draws: Count
    open: Sequence[str]
    eta_resample: Count
    hard: Sequence[str]
    train: str | None
    encoder: str | None
    encoder_weights: str | None
    mmd_draws: Count
    corpora: Mapping[str, str]
    epsilon: Share
    synonyms: str | None
    foreign_clip: bool
    report: bool

    def write(self, run: BenchmarkSession) -> None:
        """Computes, writes and shows all of it."""
        runs, hard = read_runs(self.runs), read_runs(self.hard)
        self._check(runs, hard)
        first = next(iter(runs.values()))
        sources = (self.train, built_in(first) or first.folder)
        if self.train is not None and self.encoder is None and not self.foreign_clip:
            for folder in sources:
                images = {"annotations": read_config(Path(str(folder))).get("annotations")}
                refuse_foreign({**run.inputs.settings, **images}, ("annotations",), ("clip",))
        results, resampling = Findings(), Resampling(self.draws, run.seed)
        if self.corpora:
            division = read_table(Path(str(self.train)) / DIVISION)
            run.record.overlap = add_overlap(
                results,
                self.corpora,
                _images_and_categories(self._ood_pairs(self.train)),
                self.synonyms,
                set(division["category"].astype(str)),
                epsilon=self.epsilon,
            )
        judgements = _judged(runs)
        pairs, counts = common_pairs(judgements, self.unparsed)
        divided = division_flags(self.divisions, pairs)
        inside, ood = (pairs["split"].to_numpy() == split for split in ("id", self.split))
        if not inside.any() or not ood.any():
            raise UserError(f"the questions have no pairs of id and {self.split}")
        losses = {name: (c[inside], c[ood]) for name, c in counts.items()}
        add_degradations(
            results, losses, self.open, eta_resample=self.eta_resample, resampling=resampling
        )
        add_errors(results, wrong_answers(judgements, pairs[ood]))
        if hard:
            on_hard = common_pairs(_judged(hard), self.unparsed)[1]
            add_hard(
                results,
                {name: (*losses[name], on_hard[name]) for name in losses},
                self._both_kinds(first, pairs[ood], next(iter(hard.values()))),
                ood_split=self.split,
                resampling=resampling,
            )
        if self.train is not None:
            results.tables["mmd"] = self._mmd(
                results, run, [self._ood_pairs(folder) for folder in sources]
            )
        flags = flags_of_models(counts, divided, pairs, resampling=resampling)
        if flags is not None:
            results.tables |= flag_tables(flags)
            write_results(flags, run.folder)
        for name, table in results.tables.items():
            write_csv(table, run.folder / f"{name}.csv")
        write_table(results.draws, run.folder / DRAWS)
        run.record.title = f"OODBench's statistics: {', '.join(runs)}"
        run.record.runs = {name: str(of) for name, of in runs.items()}
        self._show(run, results, pairs["split"], flags)

    def _show(
        self,
        run: BenchmarkSession,
        results: Findings,
        pairs: pd.Series,
        flags: pd.DataFrame | None,
    ) -> None:
        said = [*statistics_sentences(results, pairs, self.split)]
        said += [] if flags is None else flag_sentences(flags)
        blocks: list[Text | Table] = [Text(item, "answer") for item in said]
        blocks += statistics_tables(results)
        show_blocks(blocks, run.folder, "oodbench_statistics")
        ood, record = SPLITS[self.split], run.record
        record.sentence = (
            f"ID against {ood}; {len(pairs):,} question pairs that all "
            f"models answered; {self.draws:,} resamples. Intervals: 95%, of TOST and MMD 90%"
        )
        if self.report:
            with optional("statistics.html"):
                figures = list(statistics_figures(results.tables, results.draws, ood))
                if flags is not None:
                    figures.extend(flag_figures(flags))
                page = Page(
                    title=record.title,
                    sentence=record.sentence,
                    blocks=[Section("Results", blocks), Section("Figures", figures)],
                    definitions=defined("oodbench_statistics"),
                    record=record,
                )
                page.write(run.folder / "statistics.html")

    def _check(self, runs: Mapping[str, FinishedRun], hard: Mapping[str, FinishedRun]) -> None:
        if not runs:
            raise UserError("no model: give run folders as task.runs=['RUN_A','RUN_B']")
        first = next(iter(runs.values()))
        if hard and DATASET in first.judged:
            raise UserError(
                f"task.hard: {first} asks about several data sets, and hard samples "
                "are of one: give the runs on that one"
            )
        if wrong := [name for name in self.open if name not in runs]:
            raise UserError(f"task.open names '{wrong[0]}': {suggestion(wrong[0], runs)}")
        if hard and [*hard] != [*runs]:
            raise UserError(
                f"task.hard has runs of {', '.join(hard)}; give those of {', '.join(runs)}, in "
                "this order"
            )
        if (self.corpora and self.train is None) or (self.synonyms and not self.corpora):
            raise UserError(
                "task.synonyms needs task.corpora, and task.corpora needs task.train: the pairs of "
                "a validation split are in no training data"
            )
        if (self.encoder is None) != (self.encoder_weights is None):
            raise UserError("give task.encoder and task.encoder_weights together")

    def _both_kinds(
        self, run: FinishedRun, asked: pd.DataFrame, hard: FinishedRun
    ) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
        """The OOD pairs and the hard ones.

        The benchmark asks a part of the pairs where there are many; what they share with the hard
        ones is a property of them all.
        """
        place = built_in(run)
        if place is None:
            log.warning(
                "E5 counts only the %s pairs of the questions, as %s has no audit.csv with all of "
                "them",
                self.split,
                run,
            )
        ood = asked if place is None else self._ood_pairs(place)
        of_hard = hard.judged[hard.judged["task"] == YES_NO]
        return _images_and_categories(ood), _images_and_categories(of_hard)

    def _ood_pairs(self, folder: str | Path | None) -> pd.DataFrame:
        """OOD pairs of a run that built questions, none cut: ``image, category, file, split``.

        Raises:
            UserError: the folder has no ``audit.csv``.
        """
        pairs = read_ood_pairs(Path(str(folder)) / "audit.csv", "task.train")
        return pairs[pairs["split"] == self.split]

    def _mmd(
        self, into: Findings, run: BenchmarkSession, sides: Sequence[pd.DataFrame]
    ) -> pd.DataFrame:
        """Train's OOD pairs against those of the questions, by the features of their images."""
        files = sorted({file for side in sides for file in side["file"]})
        paths = list(map(Path, files))
        if self.encoder is None:
            features = image_features(run.inputs.clip, paths)
        else:
            features = timm_features(self.encoder, str(self.encoder_weights), paths)
        train, val = (positions(files, side["file"]) for side in sides)
        classes, of_val = (side["category"].to_numpy() for side in sides)
        numbers = equivalence(
            features[train], classes, features[val], of_val, draws=self.mmd_draws, seed=run.seed
        )._asdict()
        into.keep("mmd", numbers.pop("drawn"))
        return pd.DataFrame(numbers.items(), columns=["quantity", "value"])


def answered_runs(folders: Sequence[str]) -> list[FinishedRun]:
    """Run folders of ``task=oodbench`` with their answers.

    Raises:
        UserError: a folder is not a finished run of that task.
    """
    runs = [FinishedRun(Path(folder)) for folder in folders]
    if missing := [run for run in runs if not run.has(JUDGED)]:
        raise UserError(f"{missing[0]} is not a finished run of task=oodbench: it has no {JUDGED}")
    return runs


def read_runs(folders: Sequence[str]) -> dict[str, FinishedRun]:
    """Run folders of ``task=oodbench`` by the name of their model.

    Their folders distinguish models of the same name.

    Raises:
        UserError: a folder is not a finished run of that task, or is named twice, or replies are
            read by different parsers.
    """
    runs = answered_runs(folders)
    paths = [run.folder for run in runs]
    if len({path.resolve() for path in paths}) < len(paths):
        raise UserError("a run is named twice")
    if runs and (other := read_otherwise(runs[0].record.reading, "", paths)):
        raise UserError(next(iter(other.values())))
    models = [str(next(iter(run.results["model"]), run.folder.parent.name)) for run in runs]
    return dict(zip(_told_apart(list(zip(models, paths, strict=True))), runs, strict=True))


def _images_and_categories(rows: pd.DataFrame) -> list[tuple[str, str]]:
    return list(zip(rows["image"].astype(str), rows["category"].astype(str), strict=True))


def _judged(runs: Mapping[str, FinishedRun]) -> Tables:
    return {name: without_rest(run.judged) for name, run in runs.items()}


def _told_apart(runs: Sequence[tuple[str, Path]]) -> list[str]:
    names = [name for name, _ in runs]
    for parts in (slice(-2, -1), slice(-2, None)):
        names = [
            shown if names.count(shown) == 1 else f"{name} ({'/'.join(path.parts[parts])})"
            for shown, (name, path) in zip(names, runs, strict=True)
        ]
    return names


def division_flags(folders: Sequence[str], pairs: pd.DataFrame) -> dict[str, Bools]:
    """Which pairs image-text models flag by their own divisions: by model, ``[P]``.

    Args:
        folders: of ``task=oodbench``, with ``image_text=[chat]`` for example; one for each model
            and data set.
        pairs: see :func:`common_pairs`. One that is not annotated, as of ID, is never flagged.

    Raises:
        UserError: a run divided nothing, or by another rule, or lacks an OOD pair.
    """
    models: dict[tuple[str, str], tuple[Path, list[pd.Series]]] = {}
    rules: dict[str, Path] = {}
    for folder in map(Path, folders):
        division, about = read_table(folder / DIVISION), RunRecord.read(folder)
        rules[str(without_keys(about.division, ("pairs",)))] = folder
        before = f"{about.annotations['name']}/" if DATASET in pairs else ""
        index = [before + division["image"].astype(str), division["category"].astype(str)]
        for key, made_with in about.image_text.items():
            name = model_name(made_with["chat"]) if "chat" in made_with else key
            _, parts = models.setdefault((name, json.dumps(made_with)), (folder, []))
            parts.append(pd.Series(division[f"flagged_{key}"].to_numpy(bool), index))
    if len(rules) > 1:
        raise UserError(f"task.divisions: give runs of the same rule; of {rules}")
    names = _told_apart([(name, folder) for (name, _), (folder, _) in models.items()])
    asked = pd.MultiIndex.from_arrays([pairs[key].astype(str) for key in ("image", "category")])
    results = {}
    for name, (folder, parts) in zip(names, models.values(), strict=True):
        flags = pd.concat(parts)
        own = flags[~flags.index.duplicated()].reindex(asked)
        if (lost := own.isna().to_numpy() & (pairs["split"] != ID).to_numpy()).any():
            raise UserError(
                f"task.divisions: {folder} has no pair of {asked[int(lost.argmax())]}: divide the "
                "images of the questions, with the same annotations=..."
            )
        results[name] = own.eq(True).to_numpy(bool)
    return results


def built_in(run: FinishedRun) -> Path | None:
    """The folder of the run that built a run's questions and still lists all pairs, if any."""
    # A run that was given its questions has no audit of its own.
    asked = run.config["task"]["questions"]
    places = [run.folder, Path(asked).parent] if asked else [run.folder]
    return next((place for place in places if (place / "audit.csv").is_file()), None)
