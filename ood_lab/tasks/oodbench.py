"""OODBench: do chat models see the objects that image-text models overlook?"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

import pandas as pd
from annotated_types import Ge, Interval
from rich.console import Console

from ood_lab.arguments import Count
from ood_lab.errors import UserError
from ood_lab.hints import suggestion
from ood_lab.io import read_table, write_csv, write_table
from ood_lab.lvlm.answers import Answer
from ood_lab.lvlm.exports import Format, export
from ood_lab.lvlm.image_text.cached import cached_scores
from ood_lab.lvlm.judged import judge
from ood_lab.lvlm.kept import model_name
from ood_lab.lvlm.oodbench.audit import without_rejected, write_audit
from ood_lab.lvlm.oodbench.build import Asked
from ood_lab.lvlm.oodbench.division import Case1, Combine, Rule, divide, labels_of
from ood_lab.lvlm.oodbench.pairs import IdPairing, Pairing
from ood_lab.lvlm.oodbench.scoring import Unparsed, results_of
from ood_lab.lvlm.oodbench.uncertainty import uncertainty_of
from ood_lab.lvlm.oodbench.wording import Form
from ood_lab.lvlm.parsers import YES_NO_PARSERS
from ood_lab.lvlm.questions import Question, write_questions
from ood_lab.lvlm.stages import built_with, by_question, noted_questions, recorded_or_asked
from ood_lab.report.oodbench_page import write_oodbench_page
from ood_lab.report.oodbench_tables import oodbench_tables
from ood_lab.report.optional import optional
from ood_lab.run.task import Task
from ood_lab.run.workspace import Workspace

log = logging.getLogger(__name__)

#: What a run that builds questions notes of them in its manifest.
_OF_BUILDING = ("annotations", "image_text", "division")
_QUESTIONS, _ANSWERS, _DIVISION = "questions.jsonl", "answers.jsonl", "division.parquet"


@dataclass(frozen=True, kw_only=True)
class OODBench(Task):
    """Builds questions, asks a chat model, scores its answers: three stages that can run alone.

    ``build`` writes ``division.parquet``, ``audit.csv`` and ``questions.jsonl``; ``ask`` writes
    ``answers.jsonl``; ``score`` writes ``judged.parquet``, ``results.*``, figures and
    ``oodbench.html``. Scores of image-text models and answers are kept for all runs, so that none
    is computed or paid for twice.

    Args:
        until: last stage to run.
        questions: ``questions.jsonl`` of another run, in place of the first stage.
        answers: ``answers.jsonl`` of another run, in place of the second stage.
        levels: ``levels.parquet`` of ``task=divide`` for the images of the questions: results are
            then also given by these levels, in place of known ones.
        case1: see :class:`~ood_lab.lvlm.oodbench.division.Rule`.
        combine: see there.
        threshold: T, see there.
        verified_only: of federated annotations, only verified labels count as absent.
        audit: ``audit.csv`` with verdicts: rejected pairs are left out.
        id_pairing: see :class:`~ood_lab.lvlm.oodbench.pairs.Pairing`.
        id_pairs: see there.
        most_pairs: see there.
        form: see :class:`~ood_lab.lvlm.oodbench.build.Asked`.
        cot_article: see there.
        bap_per_image: see there.
        parser: reads the answers to yes/no questions; None = the one that the questions name.
        unparsed: which of the two ways of treating unparsed answers is printed first.
        export: formats of other packages to write the questions in, below ``exports``.
        gate_c_on_e: BAP: a count is right only where the existence is.
        report: write figures and ``oodbench.html`` too.

    Raises:
        UserError: see :meth:`check`, the annotations and the models.
    """

    until: Literal["build", "ask", "score"] = "score"
    questions: str | None = None
    answers: str | None = None
    levels: str | None = None
    case1: Case1 = "all_labels"
    combine: Combine = "or"
    threshold: Annotated[float, Interval(gt=0, lt=1)] = 0.05
    verified_only: bool = False
    audit: str | None = None
    id_pairing: IdPairing = "any"
    id_pairs: Count | None = None
    most_pairs: Count | None = 3000
    form: Form = "plain"
    cot_article: bool = False
    bap_per_image: Annotated[int, Ge(0)] = 1
    parser: str | None = None
    unparsed: Unparsed = "drop_pair"
    export: Sequence[Format] = ()
    gate_c_on_e: bool = False
    report: bool = True

    def check(self, ws: Workspace) -> None:
        """Raises a UserError where a stage lacks what it needs, before any of them runs."""
        if self.parser is not None and self.parser not in YES_NO_PARSERS:
            known = suggestion(self.parser, YES_NO_PARSERS)
            raise UserError(f"task.parser={self.parser} reads no yes or no: {known}")
        for name in ("questions", "answers", "levels", "audit"):
            file = getattr(self, name)
            if file is not None and not Path(file).is_file():
                raise UserError(f"task.{name}={file}: there is no such file")
        if self.questions is not None and self.until == "build":
            raise UserError("task.until=build and task.questions exclude each other")
        if self.until != "build" and self.answers is None:
            _ = ws.lvlm.made_with  # a missing folder shows before the division

    def run(self, ws: Workspace) -> pd.DataFrame | None:
        """Returns the results table; None on the other ranks, and before the last stage."""
        self.check(ws)
        if not ws.is_main:
            return None
        file = Path(self.questions) if self.questions else self._build(ws)
        questions = noted_questions(file, self.levels, ws.manifest)
        if self.questions is not None:
            ws.manifest |= built_with(file, _OF_BUILDING)
        for form in self.export:
            files = export(questions, file.parent, ws.folder / "exports" / form, "oodbench", form)
            log.info("for %s: %s", form, ", ".join(map(str, files)))
        if self.until == "build":
            return None
        answers = self._answers(ws, questions, file.parent)
        return self._score(ws, questions, answers) if self.until == "score" else None

    def _build(self, ws: Workspace) -> Path:
        annotations = ws.annotations
        labels = labels_of(annotations, self.verified_only)
        folder = ws.features_root / "image_text"
        scores = {n: cached_scores(m, annotations, folder) for n, m in ws.image_text.items()}
        rule = Rule(case1=self.case1, combine=self.combine, threshold=self.threshold)
        division = divide(scores, labels, rule)
        write_table(division, ws.folder / _DIVISION)
        files = dict(zip(annotations.images["image"], annotations.images["file"], strict=True))
        paths = {image: str(annotations.root / name) for image, name in files.items()}
        write_audit(division, paths, ws.folder / "audit.csv")
        if self.audit is not None:
            division = without_rejected(division, Path(self.audit))
        drawn = Pairing(
            id_pairing=self.id_pairing, id_pairs=self.id_pairs, most_pairs=self.most_pairs
        ).draw(division, labels, ws.seed)
        asked = Asked(
            form=self.form,
            cot_article=self.cot_article,
            parser=self.parser or "default",
            bap_per_image=self.bap_per_image,
        )
        write_questions(asked.questions(drawn, annotations, ws.seed), ws.folder / _QUESTIONS)
        found = division["split"].value_counts().to_dict()
        ws.manifest |= {
            "annotations": {
                "name": annotations.name,
                "identity": annotations.identity,
                "images": len(annotations.images),
                "categories": len(annotations.categories),
            },
            "image_text": {name: dict(model.made_with) for name, model in ws.image_text.items()},
            "division": asdict(rule) | {"pairs": {str(k): int(v) for k, v in found.items()}},
        }
        log.info("annotated pairs by split: %s", found)
        return ws.folder / _QUESTIONS

    def _answers(
        self, ws: Workspace, questions: Sequence[Question], folder: Path
    ) -> dict[str, Answer]:
        found = recorded_or_asked(
            questions, folder, self.answers, lambda: ws.lvlm, ws.answers_root, ws.manifest
        )
        return by_question(found, ws.folder, ws.manifest)

    def _score(
        self, ws: Workspace, questions: Sequence[Question], answers: dict[str, Answer]
    ) -> pd.DataFrame:
        judged = judge(questions, answers, self.parser)
        write_table(judged, ws.folder / "judged.parquet")
        results = results_of(
            judged,
            model_name(ws.manifest["lvlm"]),
            draws=int(ws.metrics["draws"]),
            seed=ws.seed,
            min_count=int(ws.metrics["min_count"]),
            gate_c_on_e=self.gate_c_on_e,
        )
        write_table(results, ws.folder / "results.parquet")
        write_csv(results, ws.folder / "results.csv")
        doubts = uncertainty_of(judged, seed=ws.seed)
        if len(doubts):
            write_csv(doubts, ws.folder / "uncertainty.csv")
        ws.manifest |= {"title": self._title(ws), "unparsed": self.unparsed}
        Console().print(oodbench_tables(results, ws.manifest))
        if self.report:
            with optional("oodbench.html"):
                place = Path(self.questions).parent if self.questions else ws.folder
                file = place / _DIVISION
                known = file.exists() and "division" in ws.manifest
                division = read_table(file) if known else None
                write_oodbench_page(ws.folder, results, judged, division, ws.manifest)
        return results

    def _title(self, ws: Workspace) -> str:
        about = ws.manifest.get("annotations", {}).get("name") or str(self.questions)
        return f"OODBench: {model_name(ws.manifest['lvlm'])} on {about}"
