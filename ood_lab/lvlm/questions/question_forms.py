"""The two forms of a question: plain, and with a chain of thought."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from string import ascii_uppercase
from typing import Literal

from ood_lab.lvlm.questions.question_files import CHOICE, SAMPLE, Question, Questions

Form = Literal["plain", "cot"]
#: What a run asks: one of the forms, or each question in both.
Forms = Literal["plain", "cot", "both"]
#: Forms, and what they are called in tables.
WORDS: Mapping[Form, str] = {"plain": "plain", "cot": "chain of thought"}
#: In ``meta`` of a question that a run asks beside the same one in the first form.
BESIDE = "asked_as"
#: ``part`` of results of the second form.
COT = "cot"


def in_forms(forms: Forms, ask: Callable[[Form], Iterable[Question]]) -> Questions:
    """Questions in one form, or in both.

    Of the chain of thought, only those are added that ask for steps: the others are the same in
    both forms, and are sent once.

    Args:
        forms: that are wanted.
        ask: the questions of a form.
    """
    if forms != "both":
        return list(ask(forms))
    steps = [
        replace(q, question_id=f"{q.question_id}/{COT}", meta={**q.meta, BESIDE: COT})
        for q in ask("cot")
        if q.reply == "steps"
    ]
    return [*ask("plain"), *steps]


def apart(questions: Iterable[Question]) -> tuple[Questions, Questions]:
    """The questions of a run in its first form, and those of the second form."""
    first: list[Question] = []
    beside: list[Question] = []
    for question in questions:
        (beside if question.meta.get(BESIDE) else first).append(question)
    return first, beside


def form_of(questions: Iterable[Question]) -> Form:
    """The first form of a run: ``cot`` where any of its questions asks for steps."""
    return "cot" if any(q.reply == "steps" for q in apart(questions)[0]) else "plain"


#: Of the options of a question: as given; at random; once for each option, turned by one each time.
Order = Literal["given", "shuffled", "circular"]
#: What of a reply says which option is meant: a letter, or else a text; a text; P(letter).
ReadBy = Literal["letter", "text", "probability"]
#: In ``meta``, the question that several orders of its options belong to.
ROUND = "round"
#: A text that asks for a short reply.
_SHORT = re.compile(
    r"yes or no|yes/no|true or false|\bwords?\b|\bletter\b|\bphrase\b|\bonly\b"
    r"|\b(?:short|brief)(?:ly)?\b|\bdigits?\b|\bjust the\b",
    re.IGNORECASE,
)


def with_prompt(
    question: Question, system: str | None, prefix: str | None, suffix: str | None
) -> Question:
    """A question with words before and after its text, one space between.

    Where the whole asks for no short reply, there is room for a long one.

    Args:
        question: of the file.
        system: takes the place of its system message; None = its own.
        prefix: before the text; None = nothing.
        suffix: behind it; None = nothing.
    """
    text = " ".join(filter(None, (prefix, question.text, suffix)))
    asks = question.reply == "word" and not _SHORT.search(text)
    return replace(
        question,
        text=text,
        system=question.system if system is None else system,
        reply="open" if asks else question.reply,
    )


def with_options(
    questions: Iterable[Question], order: Order, by: ReadBy, instruct: bool, seed: int
) -> Iterator[Question]:
    """Questions with their options below the text, a letter each.

    Args:
        questions: those without options are unchanged.
        order: of the options; ``circular`` asks a question of n options n times.
        by: what the reply should say.
        instruct: add a line that asks for that.
        seed: of the shuffling, which is the same for the same id.
    """
    for question in questions:
        n = len(question.options)
        parser = "option" if question.task == CHOICE and by == "text" else question.parser
        if not n:
            yield replace(question, parser=parser)
            continue
        places = list(range(n))
        if order == "shuffled":
            random.Random(f"{seed}/options/{question.question_id}").shuffle(places)
        for turn in range(n if order == "circular" else 1):
            shown = places[turn:] + places[:turn]
            options = [question.options[place] for place in shown]
            lines = [f"{k}. {text}" for k, text in zip(ascii_uppercase, options, strict=False)]
            if instruct:
                what = "text" if by == "text" else "letter"
                lines.append(f"Answer with only the {what} of the right option.")
            right = shown.index(ascii_uppercase.index(question.answer))
            name = question.question_id
            circle = {ROUND: name} if order == "circular" else {}
            yield replace(
                question,
                question_id=f"{name}/turn {turn}" if circle else name,
                text="\n".join([question.text, *lines]),
                answer=ascii_uppercase[right],
                parser=parser,
                pair_id=question.pair_id or circle.get(ROUND),
                meta={**question.meta, **circle},
                options=tuple(options),
            )


def sampled(questions: Iterable[Question], times: int) -> list[Questions]:
    """The questions once per sample."""
    first = list(questions)
    again = [
        [
            replace(q, question_id=f"{q.question_id}#{time}", meta={**q.meta, SAMPLE: time})
            for q in first
        ]
        for time in range(2, times + 1)
    ]
    return [first, *again]
