"""What counts of a reply: the words after its reasoning, and of a cut one only what is settled."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ood_lab.lvlm.parsers import Parser

#: Where messages have what a model thought, or why it declined, apart from its reply.
APART = ("reasoning_content", "reasoning", "reasoning_details", "refusal")
#: ``finish_reason`` of a reply that reached its longest length, as servers call it.
_CUT = ("length", "max_tokens")
_TAG = r"(?:[\w-]+:)?(?:think|thinking|thoughts?|reasoning|analysis)"
#: Begin and end of a thought.
_MARKS = (
    (rf"<({_TAG})>", rf"</{_TAG}>"),
    (r"\[THINK\]", r"\[/THINK\]"),
    ("◁think▷", "◁/think▷"),
    (r"<\|begin_of_thought\|>", r"<\|end_of_thought\|>"),
    (r"<\|START_THINKING\|>", r"<\|END_THINKING\|>"),
    (r"<unused94>thought", "<unused95>"),
)
#: One that never closes takes all that follows. Some chat templates open it themselves, so that
#: the reply has only its end.
_THOUGHTS = [
    re.compile(way, re.DOTALL | re.IGNORECASE)
    for begin, end in _MARKS
    for way in (rf"{begin}.*?(?:{end}|\Z)", rf"\A.*{end}")
]
#: OpenAI's harmony: of its channels only the final one is the reply. Where its tokens are left out,
#: their names remain.
_CHANNEL = re.compile(r"<\|channel\|>|\Aanalysis(?=[A-Z])")
_FINAL = re.compile(
    r"(?:<\|channel\|>\s*final[^<]*(?:<\|constrain\|>[^<]*)?<\|message\|>|assistantfinal)"
    r"(.*?)(?:<\|(?:end|return|start|channel)\|>|\Z)",
    re.DOTALL,
)
#: How a cut reply may have gone on; whichever it is must make no difference.
_WAYS_ON = (" yes", " no", ". Yes", ". No", " A.", " B.", " 7", " seven")
_WORDS = re.compile(r"\w+")


def is_cut(finish_reason: str | None) -> bool:
    """Whether a reply ended because it had reached its longest length."""
    return finish_reason in _CUT


def without_reasoning(reply: str) -> str:
    """A reply without its thoughts; one that never closes takes all that follows.

    Thoughts are in ``<think>``, ``<thinking>``, ``<thought>``, ``<reasoning>``, ``<analysis>``
    (with a prefix, too: ``<seed:think>``), ``[THINK]``, ``◁think▷``, ``<|begin_of_thought|>``,
    ``<|START_THINKING|>``, and in every channel of OpenAI's harmony but the final one. A reply
    without any comes back unchanged.
    """
    rest = reply
    if _CHANNEL.search(reply):
        rest = "".join(_FINAL.findall(reply)[-1:])
    for thought in _THOUGHTS:
        rest = thought.sub("", rest)
    return reply if rest == reply else rest.strip()


def with_known_tags(reply: str, tags: Iterable[Sequence[str]]) -> str:
    """A reply in which further tags of thoughts, pairs of begin and end, are ``<think>``."""
    for begin, end in tags:
        reply = reply.replace(begin, "<think>").replace(end, "</think>")
    return reply


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
    text = without_reasoning(reply)
    if not text and text != reply:
        return None  # it only thought; some parsers take silence for a yes
    results = parser(text, question)
    if not cut or results is None or len(_WORDS.findall(text)) == 1:
        return results
    return results if all(parser(text + more, question) == results for more in _WAYS_ON) else None


def is_text(value: object) -> bool:
    """Whether it is a text that a file can hold: half of a surrogate pair is none."""
    try:
        return isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:
        return False
