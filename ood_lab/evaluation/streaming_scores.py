"""Sets that are scored while their images pass: nothing is kept of them but scores."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
from lightning import Trainer
from torch import Tensor

from ood_lab.common.errors import UserError
from ood_lab.common.tensor_file import Tensors
from ood_lab.detectors import Detector, DetectorRefusal, checked_score
from ood_lab.detectors.base import Detectors, Reasons
from ood_lab.evaluation.detector_fitting import each_that_works, fit_within_memory
from ood_lab.evaluation.detector_tuning import Selection, Tuning, with_tuned
from ood_lab.evaluation.prediction.table_parts import PartFiles, PartSink
from ood_lab.features.bank import Banks, FeatureBank
from ood_lab.features.extraction_hooks import Columns
from ood_lab.features.process_agreement import made_by_main
from ood_lab.schema.run_record import BankRecord, Facts


@dataclass(frozen=True)
class ScoredSet:
    """What is left of a set, ``N`` rows in dataset order: a bank without features and logits.

    Attributes:
        index: ``[N] int64``, ``labels`` and ``predictions`` too; see
            :class:`~ood_lab.features.bank.FeatureBank`.
        num_classes: of the network.
        record: of the bank that it would be.
        scores: by detector, ``[N] float64``.
        refused: detectors that could not score some of the images, and why.
        seconds: that the detectors took.
        columns: of the pass, that are read otherwise than by detectors.
    """

    index: Tensor
    labels: Tensor
    predictions: Tensor
    num_classes: int
    record: BankRecord
    scores: Tensors
    refused: Reasons
    seconds: Mapping[str, float]
    columns: Tensors

    def __len__(self) -> int:
        return len(self.index)


class ScoreSink(PartSink):
    """Columns ``index``, ``pred``, a score of every detector, and values of kept columns.

    Args:
        files: to write.
        detectors: fitted.
        kept: columns of the pass whose values ``[N, K]`` are kept.
        trainer: of the pass.
    """

    def __init__(
        self, files: PartFiles, detectors: Detectors, kept: Columns, trainer: Trainer
    ) -> None:
        super().__init__(files)
        self._detectors, self._kept = detectors, kept
        self._refused: Reasons = {}
        self._seconds: dict[str, float] = {}

    def rows(self, block: FeatureBank) -> pd.DataFrame:
        """See the base class."""
        table = {"index": block.index.numpy(), "pred": block.predictions.numpy()}
        for name, detector in self._detectors.items():
            if name in self._refused:
                continue
            start = time.perf_counter()
            try:
                table[f"score_{name}"] = checked_score(detector, block).numpy()
            except DetectorRefusal as refusal:
                self._refused[name] = str(refusal)
            spent = time.perf_counter() - start
            self._seconds[name] = self._seconds.get(name, 0.0) + spent
        for number, column in enumerate(self._kept):
            for place, values in enumerate(block.columns[column.key].T):
                table[f"column_{number}_{place}"] = values.numpy()
        return pd.DataFrame(table)

    def facts(self) -> Facts:
        """Who rejected, and the seconds since the last part."""
        seconds, self._seconds = self._seconds, {}
        return {"refused": self._refused, "seconds": seconds}


def read_scored(
    files: PartFiles,
    record: BankRecord,
    num_classes: int,
    labels: Tensor,
    kept: Columns,
) -> ScoredSet:
    """What the parts hold.

    Raises:
        UserError: a part is missing or damaged, or its rows are not those of the set.
    """
    refused: Reasons = {}
    seconds: dict[str, float] = {}
    for part in files.parts.numbers:
        facts = files.facts(part)
        refused |= facts["refused"]
        for name, spent in facts["seconds"].items():
            seconds[name] = seconds.get(name, 0.0) + spent
    table = pa.concat_tables(list(files.tables()), promote_options="default").to_pandas()
    index = torch.tensor(table["index"].to_numpy())
    if not torch.equal(index, torch.arange(len(labels))):
        raise UserError(f"'{files.folder}' does not hold every image once: delete it")
    scores = {
        name: torch.tensor(table[f"score_{name}"].to_numpy(np.float64))
        for name in seconds
        if name not in refused
    }
    columns = {
        column.key: torch.tensor(table.filter(regex=f"^column_{number}_").to_numpy())
        for number, column in enumerate(kept)
    }
    return ScoredSet(
        index,
        labels,
        torch.tensor(table["pred"].to_numpy()),
        num_classes,
        record,
        scores,
        refused,
        seconds,
        columns,
    )


@dataclass(frozen=True)
class Fitted:
    """Detectors that are ready before the images pass; the same on all processes.

    Attributes:
        detectors: by name, with those whose settings were chosen.
        seconds: that the fits took.
        selection: of the settings.
        refused: detectors that cannot be fitted, and why.
    """

    detectors: Detectors
    seconds: dict[str, float]
    selection: Selection
    refused: Reasons


def fit_before(
    trainer: Trainer, detectors: Detectors, banks: Banks, tuning: Tuning, seed: int
) -> Fitted:
    """Chooses settings and fits, on the main process, for all.

    Raises:
        UserError: on all processes: no detector works, or one needs too much memory.
    """

    def chosen_and_fitted() -> Fitted:
        selection = tuning.select(detectors, banks, seed)
        both, refused = with_tuned(detectors, selection.detectors), Reasons()
        seconds = each_that_works(both, fit, refused) if both else {}
        return Fitted({name: both[name] for name in seconds}, seconds, selection, refused)

    def fit(name: str, detector: Detector) -> float:
        start = time.perf_counter()
        if detector.fit_split is not None:
            fit_within_memory(detector, banks[detector.fit_split])
        return time.perf_counter() - start

    return made_by_main(trainer, chosen_and_fitted)


def identity_of(detectors: Detectors, fitted_on: Mapping[str, str]) -> str:
    """What scores are made by: settings of detectors, and identities of the sets by split."""
    described = {
        name: [f"{type(d).__module__}.{type(d).__qualname__}", repr(d), d.fit_split]
        for name, d in detectors.items()
    }
    return json.dumps([described, dict(fitted_on)], sort_keys=True)


def add_scores(
    parts: Mapping[str, pd.DataFrame],
    sets: Mapping[str, ScoredSet],
    fit_seconds: Mapping[str, float],
    name: str,
    _: Detector,
) -> dict[str, float]:
    """As ``fit_and_score``, of sets that have been scored.

    Raises:
        DetectorRefusal: the detector could not score some of the images.
    """
    for split in parts:
        if name in sets[split].refused:
            raise DetectorRefusal(sets[split].refused[name])
    for split, rows in parts.items():
        rows[name] = sets[split].scores[name].numpy()
    score_seconds = sum(sets[split].seconds.get(name, 0.0) for split in parts)
    return {"fit_seconds": fit_seconds.get(name, 0.0), "score_seconds": score_seconds}
