"""What is asked about the pictures: captions, existence, states, actions, numbers.

``published`` wording is that of ODE's shipped queries, to the letter and in their order;
``corrected`` asks about both concepts of the pair, with the right article and plural.
"""

from __future__ import annotations

import importlib.util
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Literal, NamedTuple

from ood_lab.errors import UserError
from ood_lab.lvlm.ode.pictures import Picture
from ood_lab.lvlm.parsers import NO, YES
from ood_lab.lvlm.questions import Question

Wording = Literal["corrected", "published"]
#: ``Question.task``: captions, and the four sorts of yes/no questions.
GENERATIVE, EXISTENCE, STATE, ACTION, NUMBER = (
    "generative",
    "existence",
    "attribute_state",
    "attribute_action",
    "attribute_number",
)
#: Absent concepts that an image is asked about.
ABSENT = 2
CAPTION = {
    "corrected": "Please describe this image.",
    "published": "Please describe this picture.",
}


class Query(NamedTuple):
    """A yes/no question about a picture."""

    task: str
    text: str
    answer: str
    concept: str


def questions_of(
    pictures: Sequence[Picture], wording: Wording = "corrected", parser: str = "default"
) -> list[Question]:
    """All questions: captions of all pictures, then existence, attributes, numbers.

    Args:
        pictures: what is asked about.
        wording: see the module.
        parser: reads the answers to the yes/no questions.

    Raises:
        UserError: there are no pictures, or two of one name.
    """
    if not pictures:
        raise UserError("there are no pictures to ask about")
    if len({each.file for each in pictures}) < len(pictures):
        raise UserError("two pictures have the same file: every picture needs one of its own")
    found = [_caption(each, wording) for each in pictures]
    for tasks in ((EXISTENCE,), (STATE, ACTION), (NUMBER,)):
        for each in pictures:
            queries = [q for q in queries_of(each, wording) if q.task in tasks]
            found += [_question(each, query, parser) for query in queries]
    return list(_told_apart(found))


def _told_apart(questions: Iterable[Question]) -> Iterator[Question]:
    """Published candidates may name a concept twice: the same question again has another id."""
    times: Counter[str] = Counter()
    for each in questions:
        times[each.question_id] += 1
        again = times[each.question_id]
        yield each if again == 1 else replace(each, question_id=f"{each.question_id}#{again}")


def queries_of(picture: Picture, wording: Wording) -> Iterator[Query]:
    """The yes/no questions about a picture, see :func:`questions_of`."""
    pair = picture.truth[:2]
    published = wording == "published"
    for concept in pair[:1] if published else pair:
        yield Query(EXISTENCE, _existence(concept, published), YES, concept)
    for concept in picture.hallu[:ABSENT]:
        yield Query(EXISTENCE, _existence(concept, published), NO, concept)
    for task, form, attributes in (
        (STATE, "Is the {} {} in the picture?", picture.states),
        (ACTION, "Does the {} {} in the picture?", picture.actions),
    ):
        for concept, attribute in zip(pair, attributes, strict=True):
            # The published lists leave out numbers that pass for states.
            if attribute is None or attribute.true.isdigit():
                continue
            for word, answer in ((attribute.true, YES), (attribute.false, NO)):
                yield Query(task, form.format(concept, word), answer, concept)
    yield from _numbers(pair[0], published)


def _existence(concept: str, published: bool) -> str:
    named = f"a {concept}" if published else str(_inflect().a(concept))
    return f"Is there {named} in the picture?"


def _numbers(concept: str, published: bool) -> Iterator[Query]:
    several = concept if published else str(_inflect().plural_noun(concept))
    yield Query(NUMBER, f"Is there one {concept} in the picture?", YES, concept)
    for number in ("two", "three"):
        yield Query(NUMBER, f"Are there {number} {several} in the picture?", NO, concept)


def _caption(picture: Picture, wording: Wording) -> Question:
    return Question(
        question_id=f"{picture.file}/{GENERATIVE}",
        task=GENERATIVE,
        image=picture.file,
        text=CAPTION[wording],
        answer=true_caption(picture),
        parser="caption",
        pair_id=picture.file,
        meta={**_meta(picture), "truth": list(picture.truth), "hallu": list(picture.hallu)},
        reply="text",
    )


def true_caption(picture: Picture) -> str:
    """A sentence that names everything that is known to be there, and nothing else."""
    attributes = zip(picture.states, picture.actions, strict=True)
    words = [[each.true for each in pair if each] for pair in attributes]
    words += [[]] * len(picture.truth)
    shown = [" ".join([*more, name]) for more, name in zip(words, picture.truth, strict=False)]
    listed = " and ".join(filter(None, [", ".join(shown[:-1]), shown[-1]]))
    return f"The picture shows {listed}."


def _question(picture: Picture, query: Query, parser: str) -> Question:
    name = f"{picture.file}/{query.task}/{query.text}"
    return Question(
        question_id=name,
        task=query.task,
        image=picture.file,
        text=query.text,
        answer=query.answer,
        parser=parser,
        pair_id=picture.file,
        meta={**_meta(picture), "concept": query.concept},
    )


def _meta(picture: Picture) -> dict[str, Any]:
    about = {"split": picture.criterion, "kind": picture.kind, "picture": picture.file}
    return {**about, **picture.meta}


@cache
def _inflect() -> Any:
    if importlib.util.find_spec("inflect") is None:
        raise UserError("wording=corrected needs the package inflect: pip install 'ood_lab[lvlm]'")
    import inflect

    return inflect.engine()
