"""OODBench: do vision-language models see the objects that image-text models overlook?"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import pandas as pd
from annotated_types import Ge, Interval

from ood_lab.common.arguments import Count
from ood_lab.common.errors import UserError
from ood_lab.common.files import write_table
from ood_lab.lvlm.annotations.image_labels import labels_of
from ood_lab.lvlm.answers.answer_files import Answers
from ood_lab.lvlm.benchmarks.oodbench.audit import audited, without_rejected, write_audit
from ood_lab.lvlm.benchmarks.oodbench.division import (
    DIVISION,
    Case1,
    Combine,
    Rule,
    divide,
)
from ood_lab.lvlm.benchmarks.oodbench.page import (
    DISTRIBUTION,
    RECORD,
)
from ood_lab.lvlm.benchmarks.oodbench.pooled_datasets import built_datasets, questions_of_datasets
from ood_lab.lvlm.benchmarks.oodbench.question_building import QuestionSettings
from ood_lab.lvlm.benchmarks.oodbench.question_pairs import IdPairing, Pairing
from ood_lab.lvlm.benchmarks.oodbench.scoring import bap_needs, contrasts, results_of
from ood_lab.lvlm.benchmarks.oodbench.split_contents import distribution_of, with_fields
from ood_lab.lvlm.image_text.foreign_images import refuse_foreign
from ood_lab.lvlm.image_text.score_cache import cached_scores
from ood_lab.lvlm.pages.benchmark_record import BenchmarkRecord
from ood_lab.lvlm.questions.package_exports import GroupMetric
from ood_lab.lvlm.questions.question_files import Question, Questions
from ood_lab.lvlm.questions.question_forms import Form, Forms, in_forms
from ood_lab.lvlm.scoring.yes_no_scores import Unparsed
from ood_lab.run.building.benchmark_rules import results_options
from ood_lab.run.building.benchmark_task import Benchmark
from ood_lab.run.job.workspace import Workspace
from ood_lab.schema.results import NamedTables, Tables

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class OODBench(Benchmark):
    """Builds questions, prompts a model, scores its answers: three stages that can run separately.

    ``build`` writes ``division.parquet``, ``audit.csv`` and ``questions.jsonl``; ``ask`` writes
    ``answers.jsonl``; ``score`` writes ``judged.parquet``, ``results.*``, figures and
    ``oodbench.html``. Scores of image-text models and answers are kept for all runs, so that none
    is computed or paid for twice.

    Args:
        case1, combine, threshold: see :class:`~ood_lab.lvlm.benchmarks.oodbench.division.Rule`.
        verified_only: of federated annotations, only verified labels count as absent.
        audit: ``audit.csv`` with verdicts: rejected pairs are skipped.
        id_pairing, id_pairs, most_pairs, uncut: see
            :class:`~ood_lab.lvlm.benchmarks.oodbench.question_pairs.Pairing`.
        datasets: ``questions.jsonl`` of several runs, each of which divided another data set, in
            place of the first stage. They are pooled: results of a split are of all of them, and
            those of each data set are next to them.
        form: ``plain``, ``cot``, a chain of thought, or ``both``, which are then compared.
        cot_article, bap_per_image: see
            :class:`~ood_lab.lvlm.benchmarks.oodbench.question_building.QuestionSettings`.
        unparsed: which of the two ways of treating unparsed answers is printed first.
        gate_c_on_e: BAP: a count is right only where the existence is.

    Raises:
        UserError: see :meth:`check`, the annotations and the models.
    """

    case1: Case1
    combine: Combine
    threshold: Annotated[float, Interval(gt=0, lt=1)]
    verified_only: bool
    audit: str | None
    id_pairing: IdPairing
    id_pairs: Count | None
    most_pairs: Count | None
    uncut: bool
    datasets: Sequence[str]
    form: Forms
    cot_article: bool
    bap_per_image: Annotated[int, Ge(0)]
    unparsed: Unparsed
    gate_c_on_e: bool
    record: ClassVar[BenchmarkRecord] = RECORD
    files: ClassVar[Sequence[str]] = ("questions", "datasets", "answers", "levels", "audit")

    def check(self, ws: Workspace) -> None:
        """Raises a UserError where a stage lacks what it needs, before any of them runs."""
        super().check(ws)
        if self.uncut and self.most_pairs is None:
            raise UserError("task.uncut=true needs task.most_pairs: without it no split is cut")
        if self.datasets:
            if self.questions is not None or self.audit is not None:
                raise UserError("task.datasets excludes task.questions and task.audit")
            built_datasets(self.datasets)
        elif self.questions is None and not self.foreign_clip:
            refuse_foreign(ws.settings, ("annotations",), ("image_text",))

    @property
    def forms(self) -> Forms:
        """See the base class."""
        return self.form

    @property
    def given(self) -> Sequence[str]:
        """See the base class."""
        return self.datasets or super().given

    def build(self, ws: Workspace) -> list[Question]:
        """Questions about what the image-text models overlook, and about what they do not."""
        if not self.datasets:
            return self._divided(ws)
        built = built_datasets(self.datasets)
        *names, last = built
        ws.record.annotations = {"name": f"{', '.join(names)} and {last}"}
        ws.record.image_text = built[last]["image_text"]
        ws.record.datasets = {
            name: {key: about[key] for key in ("file", "annotations", "division")}
            for name, about in built.items()
        }
        return list(questions_of_datasets(built))

    def _divided(self, ws: Workspace) -> list[Question]:
        """Questions about the data set of ``annotations=...``."""
        annotations = ws.annotations
        labels = labels_of(annotations, self.verified_only)
        folder = ws.features_root / "image_text"
        scores = {n: cached_scores(m, annotations, folder) for n, m in ws.image_text.items()}
        rule = Rule(case1=self.case1, combine=self.combine, threshold=self.threshold)
        checked = audited(
            divide(scores, labels, rule), None if self.audit is None else Path(self.audit)
        )
        division = without_rejected(checked)
        write_table(division, ws.folder / DIVISION)
        files = zip(annotations.images["image"], annotations.images["file"], strict=True)
        paths = {image: str(annotations.root / name) for image, name in files}
        write_audit(checked, paths, ws.folder / "audit.csv")
        drawn = Pairing(
            id_pairing=self.id_pairing,
            id_pairs=self.id_pairs,
            most_pairs=self.most_pairs,
            uncut=self.uncut,
        ).draw(division, labels, ws.seed)
        found = division["split"].value_counts().to_dict()
        ws.record.annotations = {
            "name": annotations.name,
            "identity": annotations.identity,
            "images": len(annotations.images),
            "categories": len(annotations.categories),
            "fields": [*annotations.fields.items()],
            "domain": annotations.domain,
        }
        ws.record.image_text = {
            name: dict(model.made_with) for name, model in ws.image_text.items()
        }
        ws.record.division = asdict(rule) | {"pairs": {str(k): int(v) for k, v in found.items()}}
        log.info("annotated pairs by split: %s", found)

        def asked(form: Form) -> list[Question]:
            how = QuestionSettings(
                form=form,
                cot_article=self.cot_article,
                parser=self.parser_of_questions,
                bap_per_image=self.bap_per_image,
            )
            return how.questions(drawn, annotations, ws.seed)

        return in_forms(self.form, asked)

    @property
    def wholes(self) -> Mapping[str, GroupMetric]:
        """What BAP counts."""
        return {name: GroupMetric(needs) for name, needs in bap_needs(self.gate_c_on_e).items()}

    def judged(self, ws: Workspace, questions: Questions, answers: Answers) -> Tables:
        """See the base class."""
        return {"judged": self.read(ws, questions, answers)}

    def results(self, ws: Workspace, judged: Tables, model: str) -> pd.DataFrame:
        """See the base class."""
        return results_of(
            judged["judged"],
            model,
            gate_c_on_e=self.gate_c_on_e,
            unparsed=self.unparsed,
            **results_options(ws),
        )

    def further(self, ws: Workspace, judged: Tables, source: Path) -> NamedTables:
        """What the splits are made of."""
        yield DISTRIBUTION, distribution_of(with_fields(judged["judged"], ws.record))

    def contrasts(self, ws: Workspace, judged: Tables) -> pd.DataFrame:
        """See the base class."""
        return contrasts(judged["judged"], gate_c_on_e=self.gate_c_on_e, **ws.resampling)
