"""What people say of questions about objects: ``audit.csv`` out, and the verdicts in again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from ood_lab.common.errors import UserError
from ood_lab.lvlm.questions.question_files import Question, Questions
from ood_lab.lvlm.scoring.human_verdicts import VERDICT, AuditVerdicts, read_audit

#: What is asked: the content of a question, whatever its number.
CONTENT = ("image", "object", "label")
_ID, _CHOSEN = "question_id", "chosen"


@dataclass(frozen=True)
class Verdicts(AuditVerdicts):
    """Verdicts on questions; rows of an ``audit.csv`` that are none are skipped."""

    keys: Sequence[str] = CONTENT

    @classmethod
    def read(cls, path: str | None) -> Verdicts:
        """Those of a file.

        Raises:
            UserError: see :func:`ood_lab.lvlm.scoring.human_verdicts.read_audit`; or the file says
                both of one question.
        """
        if path is None:
            return cls()
        audit = read_audit(Path(path), CONTENT)
        if _CHOSEN in audit:  # objects that were considered and not chosen are no questions
            audit = audit[audit[_CHOSEN].str.lower() == "true"]
        given = audit[audit[VERDICT] != ""].drop_duplicates([*CONTENT, VERDICT])
        if (twice := given.duplicated(list(CONTENT))).any():
            row = given.loc[twice].iloc[0]
            asked = f"'{row['object']}' in {row['image']}"
            raise UserError(f"{path} both accepts and rejects {asked}: keep one verdict")
        return cls(audit=given, path=Path(path))

    def check_questions(self, questions: pd.DataFrame) -> None:
        """Rejects verdicts on other questions.

        Args:
            questions: all that there are, rejected ones too: ``image, object, label``, and
                ``question_id`` where they have numbers that last.

        Raises:
            UserError: a verdict belongs to none of them.
        """
        numbered = self.audit is not None and _ID in self.audit and _ID in questions
        self.check(
            questions,
            ("question {question_id}: " if numbered else "")
            + "nothing asks whether '{object}' is in {image} with the answer {label}; the audit "
            "belongs to other questions",
            [_ID] if numbered else (),
        )

    def check_asked(self, questions: Questions, split: str) -> None:
        """Rejects verdicts on other questions than a set has; see :meth:`check_questions`."""
        if own := _of_set(questions, split):
            self.check_questions(_content(own))

    def without_rejected(self, questions: Questions, split: str) -> tuple[list[Question], set[str]]:
        """Questions but for those of a set that people reject, and the items of these.

        Args:
            questions: of all sets, with ``split, category, item`` in ``meta``. An item has
                several wordings and forms, about the image that its questions are paired by.
            split: the set that the verdicts are on.
        """
        own = _of_set(questions, split)
        content = _content(own)
        items = set(content.loc[self.rejects(content), "item"])
        gone = {q.question_id for q in own if str(q.meta["item"]) in items}
        return [q for q in questions if q.question_id not in gone], items


def _of_set(questions: Questions, split: str) -> list[Question]:
    return [q for q in questions if q.meta["split"] == split]


def _content(own: Questions) -> pd.DataFrame:
    rows = [(q.pair_id, q.meta["category"], q.answer, str(q.meta["item"])) for q in own]
    return pd.DataFrame(rows, columns=[*CONTENT, "item"])


def audit_of(questions: pd.DataFrame, verdicts: Verdicts) -> pd.DataFrame:
    """Questions for people to look at: ``question_id``, content, wording, ``verdict``.

    Args:
        questions: ``item, image, object, problem, label``.
        verdicts: those that were given.
    """
    table = questions.rename(columns={"item": _ID})[[_ID, *CONTENT]]
    table = table.assign(question=[problem[0] for problem in questions["problem"]])
    return table.assign(**{VERDICT: verdicts.of(table)})
