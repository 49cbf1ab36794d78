"""Places where a reply says that what follows is its answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TypeVar

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
    r"|es|est|ist|lautet|é)\b|是|为|は|=|:|：|->|→|–|\n|\|)[\s:：*_\"#|-]*"
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
    for box in reversed(_BOXED.findall(reply)):
        yield _LATEX.sub(r"\1", _LATEX.sub(r"\1", box))
    yield from (results[2] for results in reversed([*_TAG.finditer(reply)]))
    yield from _in_json(reply)
    for mark in (_FINAL, _ANSWER, _LINE):
        yield from reversed([*_after(mark, reply)])


def _in_json(reply: str) -> Iterator[str]:
    for record in reversed(re.findall(r"\{([^{}]*)\}", reply)):
        pairs = _PAIR.findall(record)
        named = [value for key, value in pairs if _KEYS.fullmatch(key.strip().lower())]
        values = named or [value for _, value in pairs if len(pairs) == 1]
        yield from (value.strip("\"'") for value in values)


def _after(mark: re.Pattern[str], reply: str) -> Iterator[str]:
    place = 0
    while results := mark.search(reply, place):
        if not _NO_MARK.search(reply[: results.start()]):
            yield results["rest"]
        place = results.start("rest") + (results.start("rest") == results.start())


_Said = TypeVar("_Said")

#: What takes back the words before it, in a plain text: "3... wait, 4", "yes; I mean no".
_TAKEN_BACK = re.compile(
    r"(?:(?<=[.,;:!?…。，；！？(—–-])|^|(?<=\s))\s*(?:(?:but|oh|hmm+|oops|no|and)\W{1,3}){0,3}"
    r"(?:wait|hold on|hang on|actually|(?<=[.,;:!?…—–-] )sorry|correction|scratch that"
    r"|on second thoughts?|i mean"
    r"|or rather|my mistake|i was wrong|let me (?:re)?(?:look|check|count|consider|correct)\w*"
    r"|(?:up)?on (?:closer|further|second) \w+|(?:when )?looking (?:again|closer|more closely)"
    r"|(?<=,\s)no(?=\s*,)|(?<=,)no(?=\s*,)|(?:(?<=\.\.\.\s)|(?<=[—–])|(?<=[.—–-]\s))no(?=[,.])"
    r"|(?<=\?\s)no(?=[,.;:])|等等|等一下|不对|更正|但?其实|其實|实际上|實際上|いや|訂正)(?:\b|(?<=[^\x00-\x7f]))",
    re.IGNORECASE,
)
#: So many are looked at: a model that repeats itself takes back a thousand times.
_MOST = 3
#: A first impression, which a later clause replaces: "at first 3, but", "I thought yes, but".
_IMPRESSION = re.compile(
    r"(?:(?:^|(?<=[.;!?\n]))[^.;!?\n]{0,200}?\bat first(?: glance| sight)?\b[^.;!?\n]{0,200}?"
    r"|\b(?:at first(?: glance| sight)?|first|initially|originally)\b[^.;!?\n]{0,200}?"
    r"|\bi (?:first |initially )?(?:thought|believed|assumed|saw|counted)\b[^.;!?\n]{0,200}?"
    r"|(?:it|that|there)(?: first)? (?:looks?|seems?|appears?|looked|seemed|appeared|might be"
    r"|may be|could be)\b[^.,;!?\n]*?)(?:[,;.]?\s*\b(?:but|yet|however)\b|;)|(?:开始|起初|一开始"
    r"|原本?|本来|我)以?为[^,，。;；]*[,，。;；]",
    re.IGNORECASE,
)


def settled(text: str, says: Callable[[str], _Said | None]) -> _Said | None:
    """What a plain text says in the end.

    That is what follows the last words that take something back, where it says anything. Else it is
    the whole without first impressions.

    Args:
        text: of the reply.
        says: what a text says; None = nothing.
    """
    last_first = reversed([*_TAKEN_BACK.finditer(text)][-_MOST:])
    endings = [text[results.end() :] for results in last_first]
    parts = [*endings, _IMPRESSION.sub(" ", text), text]
    return next((reply for part in parts if (reply := says(part)) is not None), None)
