"""Parsers: what a reply to a question says, or None where it says nothing that can be read.

Every parser is a function of the reply's text alone, so answers are parsed again without being
asked again. A question names its parser; ``task.parser=NAME`` replaces it by another.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import NamedTuple

from ood_lab.errors import UserError
from ood_lab.hints import suggestion

Parser = Callable[[str], str | None]

YES, NO = "yes", "no"
_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)?")
_DIGITS = r"\d{1,3}(?:,\d{3})+(?!\d)|\d+"
#: What says a number where no number stands: "no car", "a car".
_IMPLIED = {"no": 0, "none": 0, "a": 1, "an": 1}

#: VLMEvalKit's marks. One that a space stands beside anywhere is dropped, else it parts words; with
#: a comma between digits, all of them are dropped.
_MARKS = ';/[]"{}()=+\\_-><@`,?!'
_BETWEEN_DIGITS = re.compile(r"\d,\d")
_FULL_STOP = re.compile(r"(?<!\d)\.(?!\d)")
#: Its release removes so many full stops at most.
_MOST_STOPS = 32
#: MMBench's options, what parts words there, and what it takes for a refusal.
_OPTIONS = {"A": YES, "B": NO}
_PARTS = str.maketrans(dict.fromkeys(".()[],:;!*#{}", " "))
_NO_ANSWER = (
    "Failed to obtain answer via API",
    "Sorry, I can't help with images of people yet.",
    "I can't process this file.",
    "I'm sorry, but without the image provided",
    "Cannot determine the answer",
)
_ANSWER_IS = re.compile(r"answer\s+is\s+\**([abcd])", re.IGNORECASE)


def default(reply: str) -> str | None:
    """Ours. The first word, else the only one of yes and no, else the last of them.

    The last one is what a chain of thought ends with.
    """
    words = _words(reply)
    if words and words[0] in (YES, NO):
        return words[0]
    found = [word for word in words if word in (YES, NO)]
    return found[-1] if found else None


def strict(reply: str) -> str | None:
    """Ours. The reply is nothing but yes or no; case and the punctuation around it are ignored."""
    words = _words(reply)
    return words[0] if len(words) == 1 and words[0] in (YES, NO) else None


def pope(reply: str) -> str | None:
    """POPE's rule (arXiv 2305.10355): no, if its first sentence has No, not or no; else yes."""
    words = reply.split(".")[0].replace(",", "").split(" ")
    return NO if {"No", "not", "no"} & set(words) else YES


def amber(reply: str) -> str | None:
    """AMBER's rule (arXiv 2311.07397): exactly ``Yes`` or ``No``."""
    return {"Yes": YES, "No": NO}.get(reply)


def lmms_pope(reply: str) -> str | None:
    """lmms-eval's rule for POPE: yes or no alone, whatever the case and the space around it.

    A full stop is too much: "Yes." is none.
    """
    said = reply.lower().strip()
    return said if said in (YES, NO) else None


def ode(reply: str) -> str | None:
    """ODE's rule (arXiv 2409.09318): what stands before the first comma, line end and full stop.

    Else no, if No, not or no is anywhere in the reply, inside of words too ("know").
    """
    head = reply.split(",")[0].split("\n")[0].split(".")[0]
    if head in ("Yes", "yes", "No", "no"):
        return head.lower()
    return NO if any(part in reply for part in ("No", "not", "no")) else None


def vlmeval(reply: str) -> str | None:
    """VLMEvalKit's rule for yes/no questions, to the letter.

    The one of yes and no that is among the words; both or neither is none, which it would give to
    a judge. Its punctuation has no ``*``: ``**Yes**`` is neither.
    """
    text = reply.lower()
    dropped = _BETWEEN_DIGITS.search(text) is not None
    marks: dict[str, str | int | None] = {
        mark: "" if dropped or f"{mark} " in text or f" {mark}" in text else " " for mark in _MARKS
    }
    words = _FULL_STOP.sub("", text.translate(str.maketrans(marks)), count=_MOST_STOPS).split()
    found = {YES, NO}.intersection(words)
    return found.pop() if len(found) == 1 else None


def mmbench(reply: str) -> str | None:
    """MMBench's first step (arXiv 2307.06281), as VLMEvalKit has it, to the letter.

    The options are A = yes and B = no. Capital A or B is the answer where only one of them is a
    word, and among the last four; else what follows "answer is"; else the one of yes and no that
    the reply contains, within words too, if it has ten characters at most. So "A no" and "A dog is
    there" are A, and "Yes, there is a dog." is left to the judge: it is none here.
    """
    if any(text in reply for text in _NO_ANSWER):
        return None
    words = reply.translate(_PARTS).split()
    named = [letter for letter in _OPTIONS if letter in words]
    if len(named) == 1 and words.index(named[0]) >= len(words) - 4:
        return _OPTIONS[named[0]]
    if not named and "Z" in words:
        return None
    said = _ANSWER_IS.search(reply)
    if said is not None and said[1].upper() in _OPTIONS:
        return _OPTIONS[said[1].upper()]
    text = reply.lower()
    # Twice as long as both options together.
    contained = [option for option in _OPTIONS.values() if option in text]
    short = len(text) <= 2 * len(YES + NO)
    return contained[0] if short and len(contained) == 1 else None


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
    implied = [_IMPLIED[word] for word in _words(text) if word in _IMPLIED]
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
    if importlib.util.find_spec("inflect") is None:
        raise UserError("reading numbers needs the package inflect: pip install 'ood_lab[lvlm]'")
    import inflect

    engine = inflect.engine()
    values = {"hundred": 100}
    for value in range(1000):
        for joint in ("and", ""):
            text = str(engine.number_to_words(str(value), andword=joint))
            values |= dict.fromkeys((text, text.replace("-", " ")), value)
    ways = "|".join(map(re.escape, sorted(values, key=len, reverse=True)))
    # "No one" is no number.
    return _Numbers(re.compile(rf"{_DIGITS}|(?<!\bno[ -])\b(?:{ways})\b"), values)


#: By the name that questions and ``task.parser`` use.
PARSERS: Mapping[str, Parser] = {
    "default": default,
    "strict": strict,
    "pope": pope,
    "amber": amber,
    "lmms_pope": lmms_pope,
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
