"""The questions about the pictures: captions, existence, states, actions, numbers.

They ask about both concepts of the pair in the paper's words (section 3.4), with the right article
and plural; ``released`` ones are ODE's shipped queries, which say "picture" throughout, see
:mod:`ood_lab.lvlm.benchmarks.ode.criteria`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from ood_lab.common.errors import UserError
from ood_lab.lvlm.image_generation.pictures import AnnotatedPicture, AnnotatedPictures
from ood_lab.lvlm.parsers import NO, YES
from ood_lab.lvlm.parsers.base import english
from ood_lab.lvlm.questions.question_files import (
    ACTION,
    EXISTENCE,
    GENERATIVE,
    NUMBER,
    STATE,
    Question,
    Questions,
    true_caption,
)

#: Absent concepts that an image is asked about.
ABSENT = 2
CAPTION, RELEASED_CAPTION = "Please describe this image.", "Please describe this picture."
EXISTS = "Is there {} in the image?"
HAS_STATE = "Is the {} {} in the image?"
DOES_ACTION = "Does the {} {} in the picture?"
IS_ONE, ARE_SEVERAL = "Is there one {} in the picture?", "Are there {} {} in the picture?"


class Query(NamedTuple):
    """A yes/no question about a picture."""

    task: str
    text: str
    answer: str
    concept: str


def questions_of(
    pictures: AnnotatedPictures, released: bool = False, parser: str = "default"
) -> Questions:
    """All questions: captions of all pictures, then existence, attributes, numbers.

    Args:
        pictures: the subject of the questions.
        released: see the module.
        parser: reads the answers to the yes/no questions.

    Raises:
        UserError: there are no pictures, or two of one name.
    """
    if not pictures:
        raise UserError("there are no pictures to ask about")
    if len({item.file for item in pictures}) < len(pictures):
        raise UserError("two pictures have the same file: every picture needs one of its own")
    results = [_caption(item, released) for item in pictures]
    for tasks in ((EXISTENCE,), (STATE, ACTION), (NUMBER,)):
        for item in pictures:
            queries = [q for q in queries_of(item, released) if q.task in tasks]
            results += [
                _question(item, q, parser, f"{q.task}/{q.text}", {"concept": q.concept})
                for q in queries
            ]
    return list(_told_apart(results))


def _told_apart(questions: Iterable[Question]) -> Iterator[Question]:
    """Published candidates may name a concept twice: the same question again has another id."""
    times: Counter[str] = Counter()
    for item in questions:
        times[item.question_id] += 1
        again = times[item.question_id]
        yield item if again == 1 else replace(item, question_id=f"{item.question_id}#{again}")


def queries_of(picture: AnnotatedPicture, released: bool) -> Iterator[Query]:
    """The yes/no questions about a picture, see :func:`questions_of`."""
    pair = picture.truth[:2]
    for concept in pair[:1] if released else pair:
        yield Query(EXISTENCE, _existence(concept, released), YES, concept)
    for concept in picture.hallu[:ABSENT]:
        yield Query(EXISTENCE, _existence(concept, released), NO, concept)
    for task, form, attributes in (
        (STATE, HAS_STATE, picture.states),
        (ACTION, DOES_ACTION, picture.actions),
    ):
        for concept, attribute in zip(pair, attributes, strict=True):
            # The published lists leave out numbers that pass for states.
            if attribute is None or attribute.true.isdigit():
                continue
            for word, answer in ((attribute.true, YES), (attribute.false, NO)):
                yield Query(task, _text(form, released, concept, word), answer, concept)
    if picture.numbers:
        yield from _numbers(pair[0], released)


def _existence(concept: str, released: bool) -> str:
    named = f"a {concept}" if released else str(english().a(concept))
    return _text(EXISTS, released, named)


def _numbers(concept: str, released: bool) -> Iterator[Query]:
    several = concept if released else str(english().plural_noun(concept))
    yield Query(NUMBER, _text(IS_ONE, released, concept), YES, concept)
    for number in ("two", "three"):
        yield Query(NUMBER, _text(ARE_SEVERAL, released, number, several), NO, concept)


def _text(form: str, released: bool, *words: str) -> str:
    return (form.replace("image", "picture") if released else form).format(*words)


def _caption(picture: AnnotatedPicture, released: bool) -> Question:
    text = RELEASED_CAPTION if released else CAPTION
    query = Query(GENERATIVE, text, true_caption(_shown(picture)), "")
    known = {"truth": list(picture.truth), "hallu": list(picture.hallu)}
    asked = _question(picture, query, "caption", GENERATIVE, known)
    return replace(asked, reply="text")


def _shown(picture: AnnotatedPicture) -> list[str]:
    """Everything that is known to be there, with what is known of it."""
    attributes = zip(picture.states, picture.actions, strict=True)
    words = [[item.true for item in pair if item] for pair in attributes]
    words += [[]] * len(picture.truth)
    return [" ".join([*more, name]) for more, name in zip(words, picture.truth, strict=False)]


def _question(
    picture: AnnotatedPicture, query: Query, parser: str, name: str, known: Mapping[str, Any]
) -> Question:
    about = {"split": picture.criterion, "kind": picture.kind, "picture": picture.file}
    return Question(
        question_id=f"{picture.file}/{name}",
        task=query.task,
        image=picture.file,
        text=query.text,
        answer=query.answer,
        parser=parser,
        pair_id=picture.file,
        meta={**about, **picture.meta, **known},
    )
