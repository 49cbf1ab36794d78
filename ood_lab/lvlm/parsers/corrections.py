"""How a reply takes something back: what comes after counts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TypeVar

_Said = TypeVar("_Said")

#: What takes back the words before it, in a plain text: "3... wait, 4", "yes; I mean no".
_TAKEN_BACK = re.compile(
    r"(?:(?<=[.,;:!?…。，；！？(—–-])|^|(?<=\s))\s*(?:(?:but|oh|hmm+|oops|no|and)\W{1,3}){0,3}"
    r"(?:wait|hold on|hang on|actually|(?<=[.,;:!?…—–-] )sorry|correction|scratch that"
    r"|on second thoughts?|i mean"
    r"|or rather|my mistake|i was wrong|let me (?:re)?(?:look|check|count|consider|correct)\w*"
    r"|(?:up)?on (?:closer|further|second) \w+|(?:when )?looking (?:again|closer|more closely)"
    r"|(?<=,\s)no(?=\s*,)|(?<=,)no(?=\s*,)|(?:(?<=\.\.\.\s)|(?<=[—–])|(?<=[.—–-]\s))no(?=[,.])"
    r"|(?<=\?\s)no(?=[,.;:])|等等"
    r"|等一下|不对|更正|但?其实|其實|实际上|實際上|いや|訂正)(?:\b|(?<=[^\x00-\x7f]))",
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
    r"|may be|could be)"
    r"\b[^.,;!?\n]*?)(?:[,;.]?\s*\b(?:but|yet|however)\b|;)|(?:开始|起初|一开始"
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
    return next((said for part in _endings(text) if (said := says(part)) is not None), None)


def _endings(text: str) -> Iterator[str]:
    for found in reversed([*_TAKEN_BACK.finditer(text)][-_MOST:]):
        yield text[found.end() :]
    yield _IMPRESSION.sub(" ", text)
    yield text
