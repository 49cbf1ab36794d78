"""Questions about hard samples: what an object detector is least sure of."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Interval

from ood_lab.common.arguments import BatchSize, Count, Share
from ood_lab.common.files import write_table
from ood_lab.lvlm.annotations.image_labels import labels_of
from ood_lab.lvlm.benchmarks.oodbench.hard_samples import HardSamples
from ood_lab.lvlm.benchmarks.oodbench.question_building import QuestionSettings
from ood_lab.lvlm.image_text.object_proposals import ObjectDetector
from ood_lab.lvlm.questions.question_files import write_questions
from ood_lab.lvlm.questions.question_forms import Form
from ood_lab.run.building.workspace import Task, Workspace

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class OODBenchHard(Task):
    """Writes ``hard.parquet`` and ``questions.jsonl``, which ``task=oodbench`` asks.

    Args:
        path: folder of an object detector of transformers.
        threshold: of its proposals.
        batch_size: images at a time.
        device: None = the first GPU, else the CPU.
        gamma, per_image, share: see
            :class:`~ood_lab.lvlm.benchmarks.oodbench.hard_samples.HardSamples`.
        form, bap_per_image: see
            :class:`~ood_lab.lvlm.benchmarks.oodbench.question_building.QuestionSettings`.

    Raises:
        UserError: see the annotations, the detector and the mining.
    """

    path: str
    threshold: Share
    batch_size: BatchSize
    device: str | None
    gamma: Annotated[float, Interval(ge=0, le=10)]
    per_image: Count
    share: Share
    form: Form
    bap_per_image: Annotated[int, Ge(0)]

    def run(self, ws: Workspace) -> None:
        """See the class."""
        detector = ObjectDetector(self.path, self.threshold, self.batch_size, self.device)
        annotations = ws.annotations
        images = annotations.images
        files = [annotations.root / file for file in images["file"]]
        proposals = detector.proposals(files, images["image"].tolist())
        mining = HardSamples(gamma=self.gamma, per_image=self.per_image, share=self.share)
        pairs = mining.mine(proposals, labels_of(annotations))
        write_table(pairs, ws.folder / "hard.parquet")
        asked = QuestionSettings(form=self.form, bap_per_image=self.bap_per_image)
        questions = asked.questions(pairs, annotations, ws.seed)
        write_questions(questions, ws.folder / "questions.jsonl")
        ws.manifest |= {
            "annotations": {"name": annotations.name, "identity": annotations.identity},
            "proposals": len(proposals),
            "hard_pairs": len(pairs),
        }
        log.info(
            "%d hard pairs of %d proposals; ask about them with task=oodbench task.questions='%s'",
            len(pairs),
            len(proposals),
            ws.folder / "questions.jsonl",
        )
