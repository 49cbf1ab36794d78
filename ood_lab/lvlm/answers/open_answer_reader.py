"""A language model that says what open answers mean: yes or no, a number, an option."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from ood_lab.common.errors import UserError
from ood_lab.common.file_records import text_sha256
from ood_lab.lvlm.answers.answer_files import Answers, AnswerStore
from ood_lab.lvlm.answers.answer_requests import answers_to
from ood_lab.lvlm.answers.judgements import FAILED, PARSED, UNPARSED, judge
from ood_lab.lvlm.chat.base import ChatModel
from ood_lab.lvlm.parsers import OURS, PARSERS, YES_NO_PARSERS, Parser, parser_of
from ood_lab.lvlm.parsers.reply_text import without_reasoning
from ood_lab.lvlm.questions.question_files import Question, Questions


@dataclass(frozen=True)
class TextModel:
    """Asks for no reply twice.

    Args:
        model: of ``judge=...`` or ``reader=...``.
        store: keeps its replies.
        accept_failed: texts that got no reply are skipped; else they are an error, as what is
            made of the others would not be what the model stands for.
        name: what messages call it.
    """

    model: ChatModel
    store: AnswerStore
    accept_failed: bool = False
    name: str = "judge"

    def replies(self, kind: str, texts: Iterable[str]) -> dict[str, str | None]:
        """The reply to each text, without its thoughts; None: it failed, and that is accepted.

        Args:
            kind: of question, the first part of its id.
            texts: to be asked.

        Raises:
            UserError: the model cannot answer, or has not answered all. Replies are kept.
        """
        questions = [
            Question(f"{kind}/{text_sha256(text)[:16]}", kind, None, text, "")
            for text in dict.fromkeys(texts)
        ]
        answers = answers_to(questions, Path(), self.model, self.store) if questions else []
        errors = [answer.error for answer in answers if answer.error]
        if errors and not self.accept_failed:
            raise UserError(
                f"the {self.name} has not answered {len(errors):,} of {len(answers):,} questions "
                f"({errors[0]}): every reply that came is kept; repeat the command to ask the "
                "others again, or give task.accept_failed=true to skip them"
            )
        return {a.prompt: None if a.error else without_reasoning(a.response) for a in answers}


#: ``task.parser`` that has ``reader=...`` read the answers.
READER = "reader"
_TEXT = (
    "An assistant was asked a question about an image, which you do not see. Say what its answer "
    "means; do not answer the question yourself.\n"
    "Question: {question}\nAnswer: {reply}\n"
    "Does this answer mean yes or no? Reply with one word: yes, no or unclear."
)
#: MMBench's second step (arXiv 2307.06281).
_MATCHING = (
    "Match an answer to one of the options of a question, whichever means the same. If it means "
    "neither of them, reply with C.\n"
    "Question: {question}\nOptions: A. yes B. no\nAnswer: {reply}\n"
    "Reply with one letter, A, B or C."
)
#: Behind an answer that reached its longest length.
_CUT = " [the answer breaks off here]"


#: Counts and choices: the prompt.
_OF_KINDS = {
    "number": (
        "An assistant was asked a question about an image, which you do not see. Say which number "
        "its answer gives; do not answer the question yourself.\n"
        "Question: {question}\nAnswer: {reply}\n"
        "Which number is it? Reply with digits, or with unclear: where it gives no number, "
        "several, a range or a limit."
    ),
    "choice": (
        "An assistant was asked a question about an image, which you do not see. Say which option "
        "its answer chooses; do not answer the question yourself.\n"
        "Question: {question}\nAnswer: {reply}\n"
        "Which option is it? Reply with its letter, or with unclear: where it chooses none, or "
        "several."
    ),
}
#: By parser of a question that a reader reads: its prompt, and the parser of what it replies.
_READ = dict.fromkeys(YES_NO_PARSERS, (_TEXT, "default"))
_READ |= {name: (prompt, name) for name, prompt in _OF_KINDS.items()}
_READ["option"] = _READ["choice"]


def parsers_of(questions: Questions, given: str | None) -> dict[str, str]:
    """By parser that reads any reply, whose rule it is; captions have none.

    Args:
        questions: those that were sent.
        given: parser in place of their own; :data:`READER` is one.
    """
    names = dict.fromkeys(
        READER
        if given == READER and question.parser in _READ
        else parser_of(question.parser, given)
        for question in questions
    )
    sources = {name: parser.source for name, parser in PARSERS.items()} | {READER: OURS}
    return {name: sources[name] for name in names if name in sources}


def read_by_reader(questions: Questions, answers: Answers, model: TextModel) -> pd.DataFrame:
    """What every reply says, where a language model reads those to all but free-text questions.

    A reply of one word is not shown to it, if the parser of its question (``strict``, of yes or no)
    reads it. What it finds unclear is unparsed.

    Args:
        questions: those that were sent.
        answers: by the id of the question.
        model: reads texts only.

    Returns:
        The table of :func:`~ood_lab.lvlm.answers.judgements.judge`, and ``matched_by`` (``reader``,
        or ``""``).

    Raises:
        UserError: see :meth:`~ood_lab.lvlm.answers.open_answer_reader.TextModel.replies`.
    """
    judgements = judge(questions, answers, "strict").assign(matched_by="")
    kinds, words = judgements["parser"].map(_READ), judgements["reply"].str.count(r"\w+")
    sure = (judgements["status"] == PARSED) & (words == 1)
    for kind in kinds.dropna().unique():
        rows = (kinds == kind) & ~sure & (judgements["status"] != FAILED) & (words > 0)
        judgements.loc[rows, ["parsed", "correct", "status"]] = [None, False, UNPARSED]
        ends = judgements.loc[rows, "cut"].map({True: _CUT, False: ""})
        shown = judgements[rows].assign(reply=judgements.loc[rows, "reply"].str.strip() + ends)
        prompt, parser = kind
        judgements = matched(judgements, shown, prompt, model, PARSERS[parser], READER)
    return judgements.assign(parser=judgements["parser"].mask(kinds.notna(), READER))


def second_step(judgements: pd.DataFrame, model: TextModel) -> pd.DataFrame:
    """MMBench's second step: a language model reads the replies that the parser could not.

    What it cannot match either stays unparsed.

    Args:
        judgements: see :func:`ood_lab.lvlm.answers.judgements.judge`.
        model: reads texts only.

    Returns:
        ``parsed``, ``correct`` and ``status`` filled in, and ``matched_by`` (``judge``, or ``""``).

    Raises:
        UserError: see :meth:`~ood_lab.lvlm.answers.open_answer_reader.TextModel.replies`.
    """
    open_rows = judgements[judgements["status"] == UNPARSED]
    return matched(judgements, open_rows, _MATCHING, model, PARSERS["mmbench"], "judge")


def matched(
    judgements: pd.DataFrame,
    rows: pd.DataFrame,
    prompt: str,
    model: TextModel,
    parser: Parser,
    by: str,
) -> pd.DataFrame:
    """A table in which a language model has read some replies.

    Args:
        judgements: see :func:`ood_lab.lvlm.answers.judgements.judge`.
        rows: that it reads, by the index of the table.
        prompt: with ``{question}``, ``{reply}`` and, if it is shown, ``{truth}``.
        model: the reader.
        parser: reads its replies; where it finds nothing, the row stays unchanged.
        by: what ``matched_by`` says of rows that it has read; the others have ``""``.
    """
    texts = [
        prompt.format(question=asked, reply=reply.strip(), truth=" or ".join(truth.split("\n")))
        for asked, reply, truth in zip(*(rows[k] for k in ("text", "reply", "truth")), strict=True)
    ]
    replies = model.replies(by, texts)
    table = judgements if "matched_by" in judgements else judgements.assign(matched_by="")
    columns = ["parsed", "correct", "status", "matched_by"]
    for row, question, text in zip(rows.index, rows["text"], texts, strict=True):
        reply = replies[text]
        value = None if reply is None else parser(reply, question)
        if value is not None:
            cells: list[Any] = [value, value == table.at[row, "truth"], PARSED, by]
            table.loc[row, columns] = cells
    return table
