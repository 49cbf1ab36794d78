"""Questions about hard samples: what an object detector is least sure of."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from ood_lab.common.arguments import BatchSize, Share
from ood_lab.common.errors import UserError
from ood_lab.common.files import write_table
from ood_lab.lvlm.annotations.image_contents import labels_of
from ood_lab.lvlm.benchmarks.oodbench.question_building import questions_of
from ood_lab.lvlm.benchmarks.oodbench.question_pairs import HardSamples
from ood_lab.lvlm.image_text.object_detectors import proposals_of, recorded_proposals
from ood_lab.lvlm.questions.question_files import write_questions
from ood_lab.lvlm.questions.question_forms import Form
from ood_lab.run.job.workspace import Task, Workspace

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class OODBenchHard(HardSamples, Task):
    """Writes ``hard.parquet`` and ``questions.jsonl``, which ``task=oodbench`` asks.

    Args:
        path: folder of an object detector of transformers; None = ``detections`` are given.
        detections: those of another detector, see
            :func:`~ood_lab.lvlm.image_text.object_detectors.recorded_proposals`.
        threshold: of its proposals.
        batch_size: images at a time.
        gamma, per_image, share: see
            :class:`~ood_lab.lvlm.benchmarks.oodbench.question_pairs.HardSamples`.
        form: see :func:`~ood_lab.lvlm.benchmarks.oodbench.question_building.questions_of`.

    Raises:
        UserError: neither a detector nor detections, or both; see the annotations and the mining.
    """

    path: str | None
    detections: str | None
    threshold: Share
    batch_size: BatchSize
    form: Form

    def _proposals(self, ws: Workspace) -> pd.DataFrame:
        named = ws.settings["annotations"].get("file")
        if self.path and not self.detections:
            images = ws.annotations.paths
            return proposals_of(self.path, self.threshold, images, self.batch_size)
        if self.path or not self.detections:
            raise UserError(
                "give one object detector: task.path=DIR of transformers, or "
                "task.detections=FILE, the results of another one"
            )
        if not named:
            raise UserError("task.detections need categories by number: annotations=coco or lvis")
        return recorded_proposals(Path(self.detections), Path(named), self.threshold)

    def run(self, ws: Workspace) -> None:
        """See the class."""
        proposals = self._proposals(ws)
        annotations = ws.annotations
        pairs = self.mine(proposals, labels_of(annotations))
        write_table(pairs, ws.folder / "hard.parquet")
        questions = questions_of(pairs, annotations, seed=ws.seed, form=self.form, bap=False)
        write_questions(questions, ws.folder / "questions.jsonl")
        ws.record.annotations = {"name": annotations.name, "identity": annotations.identity}
        ws.record.proposals = len(proposals)
        ws.record.hard_pairs = len(pairs)
        log.info(
            "%d hard pairs of %d proposals; ask about them with task=oodbench task.questions='%s'",
            len(pairs),
            len(proposals),
            ws.folder / "questions.jsonl",
        )
