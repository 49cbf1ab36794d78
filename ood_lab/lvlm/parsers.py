"""Parsers: what a reply to a question says, or None where it says nothing that can be read.

Every parser is a function of the reply's text alone, so answers are parsed again without being
asked again. A question names its parser; ``task.parser=NAME`` replaces it by another.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from ood_lab.errors import UserError
from ood_lab.hints import suggestion

Parser = Callable[[str], str | None]

YES, NO = "yes", "no"
_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)?")
_NUMBER = re.compile(r"\d{1,3}(?:,\d{3})+(?!\d)|\d+|[a-z]+")
#: MMBench's options. A letter before another word is no option but an article.
_OPTIONS = {"A": YES, "B": NO}
_LETTER = re.compile(r"\b([AB])\b(?!\s+[^\W_])")
# fmt: off
_UNITS = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
    "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen",
    "nineteen", "twenty",
)
# fmt: on
_NUMBER_WORDS = {word: number for number, word in enumerate(_UNITS)} | {
    "no": 0,
    "none": 0,
    "a": 1,
    "an": 1,
}


def default(reply: str) -> str | None:
    """The first word, else the only one of yes and no, else the last of them.

    The last one is what a chain of thought ends with.
    """
    words = _words(reply)
    if words and words[0] in (YES, NO):
        return words[0]
    found = [word for word in words if word in (YES, NO)]
    return found[-1] if found else None


def strict(reply: str) -> str | None:
    """The reply is nothing but yes or no; case and the punctuation around it are ignored."""
    words = _words(reply)
    return words[0] if len(words) == 1 and words[0] in (YES, NO) else None


def pope(reply: str) -> str | None:
    """POPE's rule (arXiv 2305.10355): no, if its first sentence has No, not or no; else yes."""
    words = reply.split(".")[0].replace(",", "").split(" ")
    return NO if {"No", "not", "no"} & set(words) else YES


def amber(reply: str) -> str | None:
    """AMBER's rule (arXiv 2311.07397): exactly ``Yes`` or ``No``."""
    return {"Yes": YES, "No": NO}.get(reply)


def ode(reply: str) -> str | None:
    """ODE's rule (arXiv 2409.09318): what stands before the first comma, line end and full stop.

    Else no, if No, not or no is anywhere in the reply, inside of words too ("know").
    """
    head = reply.split(",")[0].split("\n")[0].split(".")[0]
    if head in ("Yes", "yes", "No", "no"):
        return head.lower()
    return NO if any(part in reply for part in ("No", "not", "no")) else None


def vlmeval(reply: str) -> str | None:
    """VLMEvalKit's rule: the one of yes and no that is among the words; both or neither is none."""
    found = set(_words(reply)) & {YES, NO}
    return found.pop() if len(found) == 1 else None


def mmbench(reply: str) -> str | None:
    """MMBench's first step (arXiv 2307.06281) with the options A = yes and B = no.

    The only option that the reply names, by its letter or by its text. There is no judge behind
    it: what names both or neither is not matched.
    """
    named = {_OPTIONS[letter] for letter in _LETTER.findall(reply)}
    named |= set(_words(reply)) & {YES, NO}
    return named.pop() if len(named) == 1 else None


def number(reply: str) -> str | None:
    """The first number: digits (thousands with commas), or a word from zero to twenty.

    ``no`` and ``none`` are 0, ``a`` and ``one`` are 1.
    """
    for found in _NUMBER.findall(reply.lower()):
        if found[0].isdigit():
            return str(int(found.replace(",", "")))
        if found in _NUMBER_WORDS:
            return str(_NUMBER_WORDS[found])
    return None


#: By the name that questions and ``task.parser`` use.
PARSERS: Mapping[str, Parser] = {
    "default": default,
    "strict": strict,
    "pope": pope,
    "amber": amber,
    "ode": ode,
    "vlmeval": vlmeval,
    "mmbench": mmbench,
    "number": number,
}
#: Those that read yes or no, and may stand for each other.
YES_NO_PARSERS = tuple(name for name in PARSERS if name != "number")


def parser_named(name: str) -> Parser:
    """The parser of that name.

    Raises:
        UserError: there is none.
    """
    if name not in PARSERS:
        raise UserError(f"there is no parser '{name}': {suggestion(name, PARSERS)}")
    return PARSERS[name]


def _words(reply: str) -> list[str]:
    return _WORD.findall(reply.lower())
