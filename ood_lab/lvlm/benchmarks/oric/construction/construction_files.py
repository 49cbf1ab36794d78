"""The files that a construction leaves."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from ood_lab.common.files import write_csv
from ood_lab.lvlm.annotations import Annotations
from ood_lab.lvlm.benchmarks.oric.audit import Verdicts
from ood_lab.lvlm.benchmarks.oric.construction.question_drawing import Constructed
from ood_lab.lvlm.benchmarks.oric.published_files import items_of, write_bench, write_train
from ood_lab.lvlm.object_questions.question_sets import Wording, worded


@dataclass(frozen=True)
class Writer:
    """Writes what was constructed, without the questions that people reject.

    Attributes:
        annotations: of the images.
        verdicts: on the questions.
        wording: of them.
    """

    annotations: Annotations
    verdicts: Verdicts
    wording: Wording

    def kept(self, made: Constructed) -> pd.DataFrame:
        """The questions that nobody has rejected."""
        rejected = self.verdicts.rejects(self._named(made.questions))
        return made.questions[~rejected].reset_index(drop=True)

    def _named(self, rows: pd.DataFrame) -> pd.DataFrame:
        files = self.annotations.images["file"].to_numpy(object)
        return rows.assign(image=files[rows["row"].to_numpy(np.int64)])

    def write(self, bench: Constructed, train: Constructed | None, folder: Path) -> None:
        """Writes ``oric_bench.json``, ``oric_train.json`` where there is one, and ``audit.csv``.

        Raises:
            UserError: a verdict is on none of the questions.
        """
        parts = {"bench": bench} | ({} if train is None else {"train": train})
        audits = [made.audit.assign(file=file) for file, made in parts.items()]
        audit = self._named(pd.concat(audits, ignore_index=True))
        chosen = audit["chosen"].astype(bool)
        self.verdicts.check_questions(audit[chosen])
        said = self.verdicts.of(audit).where(chosen, "")
        write_csv(audit.assign(verdict=said), folder / "audit.csv")
        for file, made in parts.items():
            items = items_of(worded(self.kept(made), self.annotations, self.wording))
            (write_bench if file == "bench" else write_train)(items, folder / f"oric_{file}.json")
