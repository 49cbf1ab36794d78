"""What counts of a reply: the words after its reasoning, and of a cut one only what is settled."""

from __future__ import annotations

import re

from ood_lab.lvlm.parsers import Parser

#: ``finish_reason`` of a reply that reached its longest length, as servers call it.
_CUT = ("length", "max_tokens")
_TAG = r"(?:think|thinking|thought|reasoning)"
_BLOCK = re.compile(
    rf"<({_TAG})>.*?(?:</\1>|\Z)|◁think▷.*?(?:◁/think▷|\Z)"
    r"|<\|begin_of_thought\|>.*?(?:<\|end_of_thought\|>|\Z)",
    re.DOTALL | re.IGNORECASE,
)
#: Some chat templates open the block themselves, so that the reply has only its end.
_OPENED_BEFORE = re.compile(rf"\A.*</{_TAG}>", re.DOTALL | re.IGNORECASE)
#: How a cut reply may have gone on; whichever it is must make no difference.
_WAYS_ON = (" yes", " no", ". Yes", ". No", " A.", " B.", " 7", " seven")
_WORDS = re.compile(r"\w+")


def is_cut(finish_reason: str | None) -> bool:
    """Whether a reply ended because it had reached its longest length."""
    return finish_reason in _CUT


def without_reasoning(reply: str) -> str:
    """A reply without its ``<think>...</think>``; a block that never closes takes all that follows.

    Blocks called ``thinking``, ``thought`` and ``reasoning`` are removed as well. A reply without
    any comes back unchanged.
    """
    rest = _OPENED_BEFORE.sub("", _BLOCK.sub("", reply))
    return reply if rest == reply else rest.strip()


def read(reply: str, parser: Parser, cut: bool, question: str = "") -> str | None:
    """What a reply says; None where it says nothing that can be read.

    Of a cut reply, that is what the parser reads however the reply might have gone on: "Yes, there
    is" has its answer, the middle of a chain of thought has none, whatever words it holds. A single
    word is taken unchanged, since ``max_tokens=1`` cuts every reply.

    Args:
        reply: as the model gave it, reasoning included.
        parser: reads what is left without the reasoning.
        cut: see :func:`is_cut`.
        question: its text.
    """
    said = without_reasoning(reply)
    if not said and said != reply:
        return None  # it only reasoned; some parsers take silence for a yes
    found = parser(said, question)
    if not cut or found is None or len(_WORDS.findall(said)) == 1:
        return found
    return found if all(parser(said + more, question) == found for more in _WAYS_ON) else None
