"""The questions about an image: a caption, and four sorts of yes/no questions in groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

#: ``Question.task``: captions, and the sorts of yes/no questions.
GENERATIVE, EXISTENCE, STATE, ACTION, NUMBER, RELATION = (
    "generative",
    "existence",
    "attribute_state",
    "attribute_action",
    "attribute_number",
    "relation",
)
#: Groups of yes/no questions, each with metrics of its own.
GROUPS: Mapping[str, tuple[str, ...]] = {
    "existence": (EXISTENCE,),
    "attribute": (STATE, ACTION, NUMBER),
    "state": (STATE,),
    "action": (ACTION,),
    "number": (NUMBER,),
    "relation": (RELATION,),
    "all": (EXISTENCE, STATE, ACTION, NUMBER, RELATION),
}


def true_caption(truth: Sequence[str]) -> str:
    """A sentence that names everything that is known to be there, and nothing else."""
    listed = " and ".join(filter(None, [", ".join(truth[:-1]), *truth[-1:]]))
    return f"The picture shows {listed or 'nothing'}."
