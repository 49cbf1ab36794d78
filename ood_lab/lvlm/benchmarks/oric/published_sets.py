"""Sets of questions from published files, and what is known of their images."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from ood_lab.common.errors import UserError
from ood_lab.lvlm.annotations import Annotations
from ood_lab.lvlm.benchmarks.oric.question_sets import Pool, QuestionSets, Verdicts, audit_of
from ood_lab.lvlm.image_text.foreign_images import is_builtin, refuse_shipped, shipped_clips

log = logging.getLogger(__name__)

_SPACES = "CLIPScores and least distances"
_FACTS = "sizes and P(object | context): there are no annotations (annotations=coco ...)"


@dataclass(frozen=True)
class PublishedSets:
    """A benchmark's published questions, and those of other files next to them.

    Attributes:
        sets: by name, the questions (``item, image, object, problem, label``) and their file; the
            benchmark's own come first.
        folder: of the images; None = that of the annotations.
        recorded: the answers are given, so that no model looks at an image.
        foreign_clip: a shipped CLIP may judge images that it knows nothing of.
    """

    sets: Mapping[str, tuple[pd.DataFrame, str]]
    folder: Path | None
    recorded: bool
    foreign_clip: bool

    @property
    def _bench(self) -> str:
        """The file of the benchmark."""
        return next(iter(self.sets.values()))[1]

    def check_images(self, settings: Mapping[str, Any]) -> None:
        """Rejects questions about images that are nowhere.

        Args:
            settings: the configuration.

        Raises:
            UserError: the folder is missing, or neither it nor annotations are given.
        """
        if self.folder is not None and not self.folder.is_dir():
            raise UserError(f"task.images={self.folder} is not a directory")
        if self.folder is None and not self.is_annotated(settings) and not self.recorded:
            raise UserError("task.bench: where are its images? Give task.images=DIR")

    def check_clips(self, settings: Mapping[str, Any], groups: tuple[str, ...]) -> None:
        """Rejects a shipped CLIP that is to judge images that it knows nothing of.

        Args:
            settings: the configuration.
            groups: of the CLIPs, ``clip`` or ``image_text``.

        Raises:
            UserError: there is one.
        """
        if self._is_foreign(settings):
            refuse_shipped(settings, self._bench, groups)

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
        """The sets without the benchmark's questions that people reject.

        Returns:
            The sets, and all of the benchmark's questions for people to look at, see
            :func:`~ood_lab.lvlm.benchmarks.oric.question_sets.audit_of`.

        Raises:
            UserError: the annotations say otherwise, an image is missing and no answers are
                given, the verdicts are on other questions, or none is left.
        """
        names = [name for questions, _ in self.sets.values() for name in questions["image"]]
        sets = QuestionSets(Pool.of(annotations, self.folder, names))
        own, *rest = self.sets
        sets.publish(own, *self.sets[own])
        audit = audit_of(sets.sets[own], verdicts)
        verdicts.check_questions(audit)
        kept = ~verdicts.rejects(audit)
        if not kept.any():
            raise UserError(f"{verdicts.path} rejects every question of {self._bench}")
        sets.sets[own] = sets.sets[own][kept].reset_index(drop=True)
        for name in rest:
            sets.publish(name, *self.sets[name])
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
        return f"{len(lost):,} of the {len(sets.rows):,} images of {self._bench} are not {folder}"

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
        """What cannot be known of the questions, a sentence each, which is reported."""
        facts = None if self.is_annotated(settings) else _FACTS
        unknown = [item for item in (self.without_space(settings, sets), facts) if item]
        for item in unknown:
            log.warning("not known of %s: %s", self._bench, item)
        return unknown
