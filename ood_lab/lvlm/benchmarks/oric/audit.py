"""What people say of ORIC's questions: ``audit.csv`` out, and the verdicts in again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from ood_lab.common.errors import UserError
from ood_lab.lvlm.benchmarks.oric.published_files import Item
from ood_lab.lvlm.scoring.human_verdicts import (
    REJECT,
    VERDICT,
    read_audit,
    stranger,
    verdicts_on,
)

#: What is asked: the content of a question, whatever its number.
CONTENT = ("image", "object", "label")
_ID, _CHOSEN = "question_id", "chosen"


@dataclass(frozen=True)
class Verdicts:
    """Verdicts on questions.

    Attributes:
        audit: rows of an ``audit.csv`` that are questions, as text; None = there are no verdicts.
        path: of the file.
    """

    audit: pd.DataFrame | None = None
    path: Path | None = None

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
        return cls(given, Path(path))

    def check(self, questions: pd.DataFrame) -> None:
        """Rejects verdicts on other questions.

        Args:
            questions: all that there are, rejected ones too: ``image, object, label``, and
                ``question_id`` where they have numbers that last.

        Raises:
            UserError: a verdict belongs to none of them.
        """
        if self.audit is None:
            return
        keys = [*CONTENT, *([_ID] if _ID in self.audit and _ID in questions else [])]
        if found := stranger(self.audit, questions, keys):
            row, line = found
            number = f"question {row[_ID]}: " if _ID in keys else ""
            raise UserError(
                f"{self.path}, line {line}: {number}nothing asks whether "
                f"'{row['object']}' is in {row['image']} with the answer {row['label']}; the "
                "audit belongs to other questions"
            )

    def of(self, questions: pd.DataFrame) -> list[str]:
        """The verdict on each row of ``image, object, label``; "" where there is none."""
        if self.audit is None:
            return [""] * len(questions)
        return verdicts_on(self.audit, questions, CONTENT)

    def rejects(self, questions: pd.DataFrame) -> pd.Series:
        """Which rows of ``image, object, label`` are rejected, by their index."""
        said = pd.Series(self.of(questions), index=questions.index, dtype=object)
        return said == REJECT


def audit_of(items: Sequence[Item], verdicts: Verdicts) -> pd.DataFrame:
    """Published questions for people to look at: ``question_id``, content, wording, ``verdict``."""
    table = pd.DataFrame(
        {
            _ID: [item.id for item in items],
            "image": [item.image for item in items],
            "object": [item.target_object for item in items],
            "label": [item.solution for item in items],
            "question": [item.problem[0] for item in items],
        }
    )
    return table.assign(**{VERDICT: verdicts.of(table)})
