"""Published questions, and what is known of their images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from ood_lab.common.errors import UserError
from ood_lab.lvlm.annotations import Annotations
from ood_lab.lvlm.benchmarks.oric.audit import Verdicts, audit_of
from ood_lab.lvlm.benchmarks.oric.construction.question_sets import ORIC
from ood_lab.lvlm.benchmarks.oric.pope_questions import read_pope
from ood_lab.lvlm.benchmarks.oric.published_files import read_bench, table_of
from ood_lab.lvlm.image_text.foreign_images import is_builtin, refuse_shipped, shipped_clips
from ood_lab.lvlm.object_questions.image_pool import Pool
from ood_lab.lvlm.object_questions.question_sets import QuestionSets

_SPACES = "CLIPScores and least distances"
_FACTS = "sizes and P(object | context): there are no annotations (annotations=coco ...)"


@dataclass(frozen=True, kw_only=True)
class PublishedQuestions:
    """ORIC's published questions, and POPE's.

    Attributes:
        bench: ``oric_bench.json``.
        pope: files of POPE, by the name of their set.
        folder: of the images; None = that of the annotations.
        recorded: the answers are given, so that no model looks at an image.
        foreign_clip: a shipped CLIP may judge images that it knows nothing of.
    """

    bench: Path
    pope: Mapping[str, Path]
    folder: Path | None
    recorded: bool
    foreign_clip: bool

    def check(self, settings: Mapping[str, Any], drawn: Sequence[str]) -> None:
        """Rejects what cannot be asked.

        Args:
            settings: the configuration.
            drawn: sets that are to be drawn from the annotations.

        Raises:
            UserError: a file or folder is missing or of another layout; there are no annotations
                to draw from; a shipped CLIP is to judge images that it knows nothing of.
        """
        read_bench(self.bench)
        for file in self.pope.values():
            read_pope(file)
        if self.folder is not None and not self.folder.is_dir():
            raise UserError(f"task.images={self.folder} is not a directory")
        annotated = self.is_annotated(settings)
        if self.folder is None and not annotated and not self.recorded:
            raise UserError("task.bench: where are its images? Give task.images=DIR")
        if drawn and not annotated:
            raise UserError(
                f"{', '.join(drawn)}: annotations are missing to draw these questions from. Give "
                "annotations=coco ..., files of POPE (task.pope=[coco_pope_random.json]), or leave "
                "task.pope and task.ablations empty"
            )
        if self._is_foreign(settings):
            draws = any(not name.startswith("pope") for name in drawn)
            groups = ("clip", "image_text") if draws else ("image_text",)
            refuse_shipped(settings, str(self.bench), groups)

    def is_annotated(self, settings: Mapping[str, Any]) -> bool:
        """Whether the annotations are of these images; builtin ones are not of a given folder."""
        node = settings.get("annotations")
        return bool(node) and (self.folder is None or not is_builtin(node or {}))

    def _is_foreign(self, settings: Mapping[str, Any]) -> bool:
        """Whether a shipped CLIP knows nothing of the images."""
        builtin = self.is_annotated(settings) and is_builtin(settings["annotations"])
        return not self.foreign_clip and not builtin

    def read(
        self, annotations: Annotations | None, verdicts: Verdicts
    ) -> tuple[QuestionSets, pd.DataFrame]:
        """The sets without the questions that people reject.

        Returns:
            The sets, and all of ORIC's questions for people to look at, see
            :func:`~ood_lab.lvlm.benchmarks.oric.audit.audit_of`.

        Raises:
            UserError: the annotations say otherwise, an image is missing and no answers are
                given, the verdicts are on other questions, or none is left.
        """
        files = {split: (read_pope(file), str(file)) for split, file in self.pope.items()}
        every = read_bench(self.bench)
        names = [item.image for items in (every, *(f[0] for f in files.values())) for item in items]
        sets = QuestionSets(Pool.of(annotations, self.folder, names))
        sets.publish(ORIC, table_of(every), str(self.bench))
        audit = audit_of(sets.sets[ORIC], verdicts)
        verdicts.check_questions(audit)
        kept = ~verdicts.rejects(audit)
        if not kept.any():
            raise UserError(f"{verdicts.path} rejects every question of {self.bench}")
        sets.sets[ORIC] = sets.sets[ORIC][kept].reset_index(drop=True)
        for split, (others, source) in files.items():
            sets.publish(split, table_of(others), source)
        lost = self._lost(sets)
        if lost and not self.recorded:
            name = sets.pool.missing(sets.rows)[0].name
            raise UserError(f"{lost}, '{name}' for one: give their folder, task.images=DIR")
        return sets, audit

    def _lost(self, sets: QuestionSets) -> str | None:
        lost = sets.pool.missing(sets.rows)
        if not lost:
            return None
        folder = f"in '{self.folder}'" if self.folder is not None else "here"
        return f"{len(lost):,} of the {len(sets.rows):,} images of {self.bench} are not {folder}"

    def without_space(self, settings: Mapping[str, Any], sets: QuestionSets) -> str | None:
        """Why no CLIP can look at the images, in a sentence; None where one can."""
        if lost := self._lost(sets):
            return f"{_SPACES}: {lost}"
        if not settings.get("clip"):
            return f"{_SPACES}: no CLIP is chosen (clip=vit_b32)"
        for label, knows in shipped_clips(settings, "clip") if self._is_foreign(settings) else ():
            return f"{_SPACES}: {label} knows only {knows}; choose a real CLIP (clip=vit_b32)"
        return None

    def unknown(self, settings: Mapping[str, Any], sets: QuestionSets) -> list[str]:
        """What cannot be known of the questions, a sentence each."""
        facts = None if self.is_annotated(settings) else _FACTS
        return [each for each in (self.without_space(settings, sets), facts) if each]
