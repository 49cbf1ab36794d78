"""OODBench's statistics over the runs of several models."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from rich.console import Console

from ood_lab.arguments import Count, Share
from ood_lab.errors import UserError
from ood_lab.hints import suggestion
from ood_lab.io import read_config, read_table, write_csv
from ood_lab.lvlm.image_text.encoder import image_features, timm_features
from ood_lab.lvlm.image_text.foreign import refuse_foreign
from ood_lab.lvlm.oodbench.page import SPLITS
from ood_lab.lvlm.oodbench.runs import (
    ModelRun,
    audited_pairs,
    built_in,
    common_pairs,
    read_runs,
)
from ood_lab.lvlm.statistics.comparison import compare_models, shared_errors
from ood_lab.lvlm.statistics.coverage import bayes_interval, clopper_pearson, semantic_overlap
from ood_lab.lvlm.statistics.degradation import (
    Degradation,
    Eta,
    Tost,
    degradation,
    signature,
    signature_tost,
)
from ood_lab.lvlm.statistics.hard import (
    Correlation,
    Resampled,
    Shared,
    Spread,
    correlation_test,
    resampling_test,
    shared_pairs,
    spread_test,
)
from ood_lab.lvlm.statistics.mmd import equivalence
from ood_lab.lvlm.statistics.page import statistics_page, statistics_tables
from ood_lab.lvlm.yes_no import YES_NO, Unparsed
from ood_lab.metrics.yes_no import yes_no_metrics
from ood_lab.report.optional import optional
from ood_lab.report.page import write_summary
from ood_lab.report.terminal import Printed
from ood_lab.run.workspace import Task, Workspace

log = logging.getLogger(__name__)

Counts = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class OODBenchStatistics(Task):
    """Writes ``degradation.csv`` and, where their inputs are given, the other tables.

    ``signature.csv`` and ``tost.csv`` (``open``), ``hard.csv`` (``hard``), ``mmd.csv``
    (``train``), ``overlap.csv`` and ``screening.csv`` (``corpora``).

    ``comparison.csv`` (McNemar, bootstrap by pair, Holm; all splits) and ``errors.csv`` (overlap of
    the errors on ``split``) are always there.

    Args:
        runs: run folders of ``task=oodbench`` on the same questions, one per model.
        split: what ID is compared with, and whose errors overlap.
        unparsed: see :func:`ood_lab.lvlm.yes_no.pair_table`.
        draws: bootstrap resamples and permutations.
        open: names of the models whose degradations make the signature.
        eta, eta_resample: see :func:`ood_lab.lvlm.statistics.degradation.signature_tost`.
        hard: runs of the same models on hard pairs, in the same order.
        hard_pairs: of a random subset of the hard pairs.
        train: a run that divided the training split by the same rule.
        encoder, encoder_weights: network of timm that MMD's features come from, and the file of
            its weights; None = ``clip=...``.
        mmd_draws: splits, permutations and resamples behind MMD's interval.
        unbiased: see :class:`ood_lab.lvlm.statistics.mmd.ClassMmd`.
        match_sizes: see :func:`ood_lab.lvlm.statistics.mmd.equivalence`.
        corpora: a CSV with ``image`` and ``text`` of the training data of each model.
        epsilon: largest share of known pairs that is negligible.
        foreign_clip: take a CLIP that comes with the package for images that it knows nothing of.
        report: write the page, ``statistics.html``.

    Raises:
        UserError: runs of other questions, an unknown model, a run without what is needed, a CLIP
            that knows nothing of their images.
    """

    runs: Sequence[str]
    split: Literal["ood_s", "ood_h"]
    unparsed: Unparsed
    draws: Count
    open: Sequence[str]
    eta: Eta
    eta_resample: Count
    hard: Sequence[str]
    hard_pairs: Count
    train: str | None
    encoder: str | None
    encoder_weights: str | None
    mmd_draws: Count
    unbiased: bool
    match_sizes: bool
    corpora: Mapping[str, str]
    epsilon: Share
    foreign_clip: bool
    report: bool

    def run(self, ws: Workspace) -> None:
        """See the class."""
        runs = read_runs(self.runs)
        hard = read_runs(self.hard)
        self._check(runs, hard)
        if self.train is not None and self.encoder is None and not self.foreign_clip:
            for run in (self.train, built_in(runs[0].path) or runs[0].path):
                images = {"annotations": read_config(Path(run)).get("annotations")}
                refuse_foreign({**ws.settings, **images}, ("annotations",), ("clip",))
        pairs, counts = common_pairs(runs, self.unparsed)
        tables = self._degradations(runs, pairs, counts, ws.seed)
        tables |= self._comparison(runs, pairs, ws.seed)
        if hard:
            tables["hard"] = self._hard(runs, pairs, counts, hard, ws.seed)
        if self.corpora:
            tables |= self._overlap()
        if self.train is not None:
            tables["mmd"] = self._mmd(ws, runs[0].path)
        for name, table in tables.items():
            write_csv(table, ws.folder / f"{name}.csv")
        blocks = statistics_tables(tables)
        write_summary(blocks, ws.folder, "oodbench_statistics")
        Console().print(Printed(blocks))
        names = [run.name for run in runs]
        ws.manifest |= {
            "title": f"OODBench's statistics: {', '.join(names)}",
            "sentence": f"ID against {SPLITS[self.split]}; {len(pairs):,} question pairs that all "
            f"models answered; {self.draws:,} draws. Intervals: 95%, of TOST and MMD 90%",
            "runs": {run.name: str(run.path) for run in runs},
        }
        if self.report:
            with optional("statistics.html"):
                statistics_page(blocks, ws.manifest).write(ws.folder / "statistics.html")

    def _check(self, runs: Sequence[ModelRun], hard: Sequence[ModelRun]) -> None:
        names = [run.name for run in runs]
        if not runs:
            raise UserError("no model: give run folders as task.runs=['RUN_A','RUN_B']")
        if wrong := [name for name in self.open if name not in names]:
            raise UserError(f"task.open names '{wrong[0]}': {suggestion(wrong[0], names)}")
        if hard and [run.name for run in hard] != names:
            raise UserError(
                f"task.hard has runs of {', '.join(run.name for run in hard)}; give those of "
                f"{', '.join(names)}, in this order"
            )
        if self.corpora and self.train is None:
            raise UserError(
                "task.corpora needs task.train: the pairs of a validation split are in no training "
                "data, whatever the model has seen"
            )
        if (self.encoder is None) != (self.encoder_weights is None):
            raise UserError("give task.encoder and task.encoder_weights together")

    def _degradations(
        self, runs: Sequence[ModelRun], pairs: pd.DataFrame, counts: Counts, seed: int
    ) -> dict[str, pd.DataFrame]:
        inside, ood = (pairs["split"].to_numpy() == split for split in ("id", self.split))
        if not inside.any() or not ood.any():
            raise UserError(f"the questions have no pairs of id and {self.split}")
        sets = {run.name: (c[inside], c[ood]) for run, c in zip(runs, counts, strict=True)}
        found = {n: degradation(*s, draws=self.draws, seed=seed) for n, s in sets.items()}
        tables = {"degradation": _by_model(found)}
        if self.open:
            ends = signature({name: found[name] for name in self.open})
            tables["signature"] = pd.DataFrame(
                [(metric, *interval) for metric, interval in ends.items()],
                columns=["metric", "low", "high"],
            )
            test = partial(
                signature_tost,
                references={name: sets[name] for name in self.open},
                eta=self.eta,
                eta_resample=self.eta_resample,
                draws=self.draws,
                seed=seed,
            )
            others = {name: test(s) for name, s in sets.items() if name not in self.open}
            tables["tost"] = _by_model(others)
        return tables

    def _comparison(
        self, runs: Sequence[ModelRun], pairs: pd.DataFrame, seed: int
    ) -> dict[str, pd.DataFrame]:
        """Models on the same questions of all splits; their errors on those of ``split``."""
        answers = [run.judged[run.judged["task"] == YES_NO] for run in runs]
        asked = [a[a["pair_id"].isin(pairs["pair_id"])].set_index("question_id") for a in answers]
        wrong = {
            run.name: ~a.loc[asked[0].index, "correct"].to_numpy(bool)
            for run, a in zip(runs, asked, strict=True)
        }
        ood = (asked[0]["split"] == self.split).to_numpy()
        found = {"errors": shared_errors({name: errors[ood] for name, errors in wrong.items()})}
        if len(runs) > 1:
            numbers = pd.factorize(asked[0]["pair_id"])[0]
            found["comparison"] = compare_models(wrong, numbers, self.draws, seed)
        return found

    def _hard(
        self,
        runs: Sequence[ModelRun],
        pairs: pd.DataFrame,
        counts: Counts,
        hard: Sequence[ModelRun],
        seed: int,
    ) -> pd.DataFrame:
        _, hard_counts = common_pairs(hard, self.unparsed)
        split = pairs["split"].to_numpy()
        accuracy = {
            name: yes_no_metrics(counts[:, split == name].sum(axis=1))["accuracy"]
            for name in ("id", self.split)
        }
        on_hard = yes_no_metrics(hard_counts.sum(axis=1))["accuracy"]
        d_hard, d_ood = accuracy["id"] - on_hard, accuracy["id"] - accuracy[self.split]
        resampled = resampling_test(
            accuracy["id"],
            accuracy[self.split],
            hard_counts,
            pairs=self.hard_pairs,
            draws=min(self.draws, 1000),
            seed=seed,
        )
        # The benchmark asks a part of the pairs where there are many; what they share with the hard
        # ones is a property of them all.
        place = built_in(runs[0].path)
        if place is None:
            log.warning(
                "E5 counts the %s pairs that were asked about, as %s has no audit.csv with all of "
                "them",
                self.split,
                runs[0].path,
            )
        ood = pairs[split == self.split] if place is None else self._ood_pairs(place)
        keys = [
            list(zip(table["image"].astype(str), table["category"].astype(str), strict=True))
            for table in (ood, hard[0].judged[hard[0].judged["task"] == YES_NO])
        ]
        parts: dict[str, Spread | Correlation | Resampled | Shared] = {
            "E1": spread_test(d_hard, d_ood),
            "E2": correlation_test(d_hard, d_ood),
            "E3, E4": resampled,
            "E5": shared_pairs(*keys),
        }
        rows = [
            {"test": test, "quantity": quantity, "value": value}
            for test, values in parts.items()
            for quantity, value in values._asdict().items()
        ]
        return pd.DataFrame(rows)

    def _ood_pairs(self, folder: str | Path | None) -> pd.DataFrame:
        pairs = audited_pairs(Path(str(folder)))
        return pairs[pairs["split"] == self.split]

    def _mmd(self, ws: Workspace, val: Path) -> pd.DataFrame:
        """Train's OOD pairs against those of the questions, by the features of their images."""
        sides = [self._ood_pairs(folder) for folder in (self.train, built_in(val) or val)]
        files = sorted({file for side in sides for file in side["file"]})
        paths = [Path(file) for file in files]
        if self.encoder is None:
            features = image_features(ws.clip, paths)
        else:
            features = timm_features(self.encoder, str(self.encoder_weights), paths)
        place = {file: row for row, file in enumerate(files)}
        arrays = [
            part
            for side in sides
            for part in (features[[place[f] for f in side["file"]]], side["category"].to_numpy())
        ]
        found = equivalence(
            *arrays,
            draws=self.mmd_draws,
            seed=ws.seed,
            unbiased=self.unbiased,
            match_sizes=self.match_sizes,
        )
        return pd.DataFrame([{"quantity": k, "value": v} for k, v in found._asdict().items()])

    def _overlap(self) -> dict[str, pd.DataFrame]:
        side = self._ood_pairs(self.train)
        pairs = list(zip(side["image"], side["category"], strict=True))
        rows = []
        for model, file in self.corpora.items():
            texts = read_table(Path(file), dtype=str)
            if missing := [name for name in ("image", "text") if name not in texts]:
                raise UserError(f"task.corpora.{model}={file} has no column '{missing[0]}'")
            by_image = {str(i): list(part) for i, part in texts.groupby("image")["text"]}
            found = semantic_overlap(pairs, by_image, self.epsilon)
            rows.append({"model": model, **found._asdict()})
        table = pd.DataFrame(rows)
        below, n = int(table["below"].sum()), len(table)
        bounds = {"clopper_pearson": clopper_pearson(below, n), "bayes": bayes_interval(below, n)}
        screening = pd.DataFrame(
            [
                {"interval": name, "models": n, "below": below, "low": b.low, "high": b.high}
                for name, b in bounds.items()
            ]
        )
        return {"overlap": table, "screening": screening.assign(epsilon=self.epsilon)}


def _by_model(found: Mapping[str, Mapping[str, Degradation | Tost]]) -> pd.DataFrame:
    rows = [
        {"model": name, "metric": metric, **value._asdict()}
        for name, values in found.items()
        for metric, value in values.items()
    ]
    return pd.DataFrame(rows)
