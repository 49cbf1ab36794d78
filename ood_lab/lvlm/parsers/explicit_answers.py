"""Places where a reply says that what follows is its answer."""

from __future__ import annotations

import re
from collections.abc import Iterator

_KEYS = re.compile(
    "(?:final[_ ])?answer|result|response|prediction|verdict|count|number|total|choice|option|label"
)
_PAIR = re.compile(r"[\"']?([\w ]+?)[\"']?\s*:\s*(\"[^\"]*\"|'[^']*'|[-\w.]+)")
_TAG = re.compile(
    r"[<\[](answer|final_answer|final|response|output)[>\]](.*?)(?:[<\[]/\1[>\]]|\Z)", re.S | re.I
)
#: A box with commands up to two deep, as ``\boxed{\text{\textbf{Yes}}}``.
_BOXED = re.compile(r"\\boxed\s*\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}")
_LATEX = re.compile(r"\\\w+\s*\{([^{}]*)\}")
_IS = (
    r"(?:\s+to\s+[^.:\n]{0,80}?)?[\s*_\"]*(?:(?:is|'s|was|(?:would|will|should|must)\s+be|remains"
    r"|es|"
    r"est|ist|lautet|é)\b|是|为|は|=|:|：|->|→|–|\n|\|)[\s:：*_\"#|-]*"
    r"(?:(?:therefore|thus|then|clearly|simply|definitely|definite|probably|likely|(?-i:an?)"
    r"|option|choice)\s+)*"
)
_NOUNS = (
    r"(?:answer|verdict|conclusion|response|option|choice|respuesta|réponse|antwort|resposta|答案|"
    r"答え|回答|结论|正解)"
)
_FINAL = re.compile(rf"\bfinal(?:\s+\w+)?\s+{_NOUNS}{_IS}(?P<rest>.*)", re.S | re.I)
_ANSWER = re.compile(rf"{_NOUNS}{_IS}(?P<rest>.*)", re.S | re.I)
_LINE = re.compile(r"(?:^|\n)\W*(?:a|ans|assistant|output)\s*:\s*(?P<rest>.*)", re.S | re.I)
#: "I cannot determine the answer: ..." and "if ..., the answer would be ..." answer nothing.
_NO_MARK = re.compile(
    r"(?:determine|give|know|obtain|provide|find|tell)\s+(?:the|an|a)?\s*(?:correct\s+)?$"
    r"|\b(?:initial|first|original|previous|earlier|wrong|other)\s+$"
    r"|\bif\b[^.,;\n]*,\s*(?:the|my)?\s*$",
    re.I,
)


def explicit_answers(reply: str) -> Iterator[str]:
    """What follows such a place, the surest kind first; of one kind the last.

    A box, a tag, JSON, a final answer, an answer.
    """
    inner = (_LATEX.sub(r"\1", box) for box in reversed(_BOXED.findall(reply)))
    yield from (_LATEX.sub(r"\1", box) for box in inner)
    yield from (found[2] for found in reversed([*_TAG.finditer(reply)]))
    yield from _in_json(reply)
    for mark in (_FINAL, _ANSWER, _LINE):
        yield from reversed([*_after(mark, reply)])


def _in_json(reply: str) -> Iterator[str]:
    for record in reversed(re.findall(r"\{([^{}]*)\}", reply)):
        pairs = _PAIR.findall(record)
        named = [value for key, value in pairs if _KEYS.fullmatch(key.strip().lower())]
        said = named or [value for _, value in pairs if len(pairs) == 1]
        yield from (value.strip("\"'") for value in said)


def _after(mark: re.Pattern[str], reply: str) -> Iterator[str]:
    place = 0
    while found := mark.search(reply, place):
        if not _NO_MARK.search(reply[: found.start()]):
            yield found["rest"]
        place = found.start("rest") + (found.start("rest") == found.start())
