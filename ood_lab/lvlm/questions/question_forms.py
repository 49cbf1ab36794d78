"""The two forms of a question: plain, and with a chain of thought."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from ood_lab.common.errors import UserError
from ood_lab.data.sources.file_facts import content_hashes
from ood_lab.lvlm.answers.answer_files import model_of
from ood_lab.lvlm.questions.question_files import Question, Questions, read_questions
from ood_lab.lvlm.questions.relocated_images import with_images_found
from ood_lab.schema.results import PART, Kind
from ood_lab.schema.run_record import RunRecord

Form = Literal["plain", "cot"]
#: What a run asks: one of the forms, or each question in both.
Forms = Literal["plain", "cot", "both"]
#: Forms, and what they are called in tables.
WORDS: Mapping[Form, str] = {"plain": "plain", "cot": "chain of thought"}
#: In ``meta`` of a question that a run asks beside the same one in the first form.
BESIDE = "asked_as"
#: ``part`` of results of the second form, and of the differences between the two.
COT, DIFFERENCE = "cot", "cot - plain"


def in_forms(forms: Forms, ask: Callable[[Form], Iterable[Question]]) -> list[Question]:
    """Questions in one form, or in both.

    Of the chain of thought, only those are added that ask for steps: the others are the same in
    both forms, and are sent once.

    Args:
        forms: that are wanted.
        ask: the questions of a form.
    """
    if forms != "both":
        return list(ask(forms))
    steps = [q for q in ask("cot") if q.reply == "steps"]
    return [
        *ask("plain"),
        *(
            replace(q, question_id=f"{q.question_id}/{COT}", meta={**q.meta, BESIDE: COT})
            for q in steps
        ),
    ]


def apart(questions: Iterable[Question]) -> tuple[list[Question], list[Question]]:
    """The questions of a run in its first form, and those of the second form."""
    first: list[Question] = []
    beside: list[Question] = []
    for question in questions:
        (beside if question.meta.get(BESIDE) else first).append(question)
    return first, beside


def form_of(questions: Iterable[Question]) -> Form:
    """The first form of a run: ``cot`` where any of its questions asks for steps."""
    return "cot" if any(q.reply == "steps" for q in apart(questions)[0]) else "plain"


def questions_of(run: Path) -> tuple[list[Question], Path] | None:
    """What a run asked in its first form, and the folder that the images start from.

    None where its file of questions is gone.
    """
    written = RunRecord.read(run).questions
    for file in (run / "questions.jsonl", Path(written.file if written else "")):
        if file.is_file():
            return with_images_found(apart(read_questions(file))[0], file.parent), file.parent
    return None


def run_of_other_form(own: Form, runs: Sequence[Path]) -> Path | None:
    """The one of these runs in the other form, if any.

    Raises:
        UserError: there are two.
    """
    asked = {run: questions_of(run) for run in runs}
    found = [run for run, known in asked.items() if known and form_of(known[0]) != own]
    if len(found) > 1:
        raise UserError(
            f"task.against: {found[0]} and {found[1]} were both asked in the other form: give one"
        )
    return found[0] if found else None


def check_same_model(run: Path, made_with: Mapping[str, Any]) -> None:
    """Two forms of a question are compared in the answers of one model.

    Raises:
        UserError: those of the run are of another one, or were made with other settings.
    """
    other = RunRecord.read(run).lvlm
    if model_of(other) != model_of(made_with):
        raise UserError(
            f"task.against: {run} has another form, and another model or other settings of "
            "lvlm=...: forms are compared in the answers of one model, models on questions of one "
            "form"
        )


def counterparts(
    own: tuple[Questions, Path],
    other: tuple[Questions, Path],
    keys: Sequence[str],
    name: str,
    cache: str | None = None,
) -> dict[str, Question]:
    """The questions that ask the same in the other form: own question by the id of the other one.

    They belong together where the content of the image, the kind of the question, the right answer
    and ``keys`` are the same; neither ids nor names of files say so.

    Args:
        own: questions of a run, and the folder that their images start from.
        other: those of another run, in the other form.
        keys: what else tells questions apart, in ``meta``.
        name: of the other run.
        cache: remembers contents of files.

    Raises:
        UserError: a question has no counterpart.
    """
    kinds = {q.task for q in (*own[0], *other[0]) if q.reply == "steps"}
    mine, theirs = (_by_identity(*side, kinds, keys, cache) for side in (own, other))
    if different := len(mine.keys() ^ theirs.keys()):
        raise UserError(
            f"{name} has other questions, not the same ones in another form ({different:,} "
            "have no counterpart of the same image, category and answer)"
        )
    return {theirs[key].question_id: question for key, question in mine.items()}


def _by_identity(
    questions: Questions, folder: Path, kinds: set[str], keys: Sequence[str], cache: str | None
) -> dict[tuple[str, ...], Question]:
    asked = [q for q in questions if q.task in kinds]
    files = sorted({str(folder / q.image) for q in asked if q.image is not None})
    content = dict(zip(files, content_hashes(files, cache), strict=True))
    found: dict[tuple[str, ...], Question] = {}
    seen: dict[tuple[str, ...], int] = {}
    for q in asked:
        image = "" if q.image is None else content[str(folder / q.image)]
        if q.image is not None and not image:
            raise UserError(f"the image '{folder / q.image}' of a question cannot be read")
        identity = (q.task, image, q.answer, *(str(q.meta.get(key)) for key in keys))
        # The same question twice in a set: the first belongs to the first.
        seen[identity] = seen.get(identity, 0) + 1
        found[(*identity, str(seen[identity]))] = q
    return found


def as_asked(judged: pd.DataFrame, twins: Mapping[str, Question]) -> pd.DataFrame:
    """Answers of another run under the pairs of its counterparts; those without one are skipped.

    Args:
        judged: of the other run.
        twins: see :func:`counterparts`.
    """
    rows = judged[judged["question_id"].isin(twins)]
    own = [twins[each] for each in rows["question_id"]]
    return rows.assign(
        question_id=[q.question_id for q in own],
        pair_id=[q.pair_id or q.question_id for q in own],
    )


def with_forms(
    kind: Kind, first: pd.DataFrame, second: pd.DataFrame | None, found: pd.DataFrame
) -> pd.DataFrame:
    """The results of a run with those of its second form, and the differences between the two.

    Args:
        kind: of the results.
        first: results of the first form.
        second: those of the chain of thought; None = another run has them.
        found: see :func:`ood_lab.lvlm.scoring.answer_differences.contrasts_by`.
    """
    tables = [first]
    if second is not None:
        tables.append(second.assign(**{PART: _named(COT, second[PART])}))
    if len(found):
        keys = [k for k in ("metric", "ci_low", "ci_high", "n", *kind.keys) if k in found]
        named = {"value": found["difference"], PART: _named(DIFFERENCE, found[PART])}
        one = first.iloc[0]
        rows = found[keys].assign(**named)
        tables.append(kind.table(rows, model=one["model"], seed=one["seed"]))
    return with_whole_counts(tables)


def with_whole_counts(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Results below each other; counts that some rows lack are whole numbers all the same."""
    table = pd.concat(tables, ignore_index=True)
    lacking = [name for name in table if str(name).startswith("n_") and table[name].isna().any()]
    return table.astype(dict.fromkeys(lacking, "Int64"))


def _named(form: str, part: pd.Series) -> pd.Series:
    """``part`` of rows of a form, or of the differences."""
    return part.map(lambda each: form if pd.isna(each) else f"{form}, {each}").astype(object)
