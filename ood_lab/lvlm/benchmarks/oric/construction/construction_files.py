"""The files that a construction leaves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from ood_lab.common.files import write_csv
from ood_lab.lvlm.annotations import Annotations
from ood_lab.lvlm.benchmarks.oric.construction.question_drawing import Constructed
from ood_lab.lvlm.benchmarks.oric.published_files import items_of, write_bench, write_train
from ood_lab.lvlm.object_questions.question_sets import Wording, worded
from ood_lab.lvlm.object_questions.question_verdicts import Verdicts


def write_construction(
    bench: Constructed,
    train: Constructed | None,
    annotations: Annotations,
    verdicts: Verdicts,
    wording: Wording,
    folder: Path,
) -> pd.DataFrame:
    """Writes ``oric_bench.json``, ``oric_train.json`` where there is one, and ``audit.csv``.

    Args:
        bench: what was constructed for the benchmark.
        train: the same to train on, if any.
        annotations: of the images.
        verdicts: on the questions; rejected ones are only in the audit.
        wording: of the questions.
        folder: where to.

    Returns:
        The questions of the benchmark that nobody has rejected.

    Raises:
        UserError: a verdict is on none of the questions.
    """
    files = annotations.images["file"].to_numpy(object)

    def named(rows: pd.DataFrame) -> pd.DataFrame:
        return rows.assign(image=files[rows["row"].to_numpy(np.int64)])

    parts = {"bench": bench} | ({} if train is None else {"train": train})
    audits = [made.audit.assign(file=file) for file, made in parts.items()]
    audit = named(pd.concat(audits, ignore_index=True))
    chosen = audit["chosen"].astype(bool)
    verdicts.check_questions(audit[chosen])
    write_csv(audit.assign(verdict=verdicts.of(audit).where(chosen, "")), folder / "audit.csv")
    kept = {}
    for file, made in parts.items():
        rejected = verdicts.rejects(named(made.questions))
        kept[file] = made.questions[~rejected].reset_index(drop=True)
        items = items_of(worded(kept[file], annotations, wording))
        (write_bench if file == "bench" else write_train)(items, folder / f"oric_{file}.json")
    return kept["bench"]
