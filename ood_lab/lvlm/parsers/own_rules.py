"""Rules of our own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from ood_lab.lvlm.parsers.base import NO, OURS, YES, parser, words_of
from ood_lab.lvlm.questions.grammar import english

_DIGITS = r"\d{1,3}(?:,\d{3})+(?!\d)|\d+"
#: What says a number where no number stands: "no car", "a car".
_IMPLIED = {"no": 0, "none": 0, "a": 1, "an": 1}


@parser(OURS, "the first word, else the last yes or no of the reply")
def default(reply: str) -> str | None:
    """The first word, else the only one of yes and no, else the last of them.

    The last one is what a chain of thought ends with.
    """
    words = words_of(reply)
    if words and words[0] in (YES, NO):
        return words[0]
    found = [word for word in words if word in (YES, NO)]
    return found[-1] if found else None


@parser(OURS, "the only word, punctuation aside")
def strict(reply: str) -> str | None:
    """The reply is nothing but yes or no; case and the punctuation around it are ignored."""
    words = words_of(reply)
    return words[0] if len(words) == 1 and words[0] in (YES, NO) else None


@parser(OURS, "the first number, in digits or words; `no` is 0 and `a` is 1")
def number(reply: str) -> str | None:
    """The first number: digits (thousands with commas) or words from zero to 999.

    Where no number stands, ``no`` and ``none`` are 0, ``a`` and ``an`` are 1, whichever is first:
    "No, there are 3" is 3.
    """
    text = reply.lower()
    words = _number_words()
    if found := words.pattern.search(text):
        said = found[0]
        return str(int(said.replace(",", "")) if said[0].isdigit() else words.values[said])
    implied = [_IMPLIED[word] for word in words_of(text) if word in _IMPLIED]
    return str(implied[0]) if implied else None


class _Numbers(NamedTuple):
    pattern: re.Pattern[str]
    values: Mapping[str, int]


@cache
def _number_words() -> _Numbers:
    """Every way to write a number below 1,000 in words, the longest first.

    Raises:
        UserError: inflect is missing.
    """
    values = {"hundred": 100}
    for value in range(1000):
        for joint in ("and", ""):
            text = str(english().number_to_words(str(value), andword=joint))
            values |= dict.fromkeys((text, text.replace("-", " ")), value)
    ways = "|".join(map(re.escape, sorted(values, key=len, reverse=True)))
    # "No one" is no number.
    return _Numbers(re.compile(rf"{_DIGITS}|(?<!\bno[ -])\b(?:{ways})\b"), values)
