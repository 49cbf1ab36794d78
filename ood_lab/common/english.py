"""Numbers with what they count, as English says it.

inflect also knows irregular nouns, which no message here has.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence


def counted(n: int, noun: str) -> str:
    """``1 epoch``, ``1,024 images``, ``2 classes``, ``3 copies``: for nouns that are regular.

    Of several words the last is the noun: ``optimiser step``.
    """
    if n == 1:
        return f"1 {noun}"
    if re.search(r"(s|x|z|[nt]ch|sh)$", noun):
        noun += "es"
    elif re.search(r"[^aeiou]y$", noun):
        noun = f"{noun[:-1]}ies"
    else:
        noun += "s"
    return f"{n:,} {noun}"


def listed(words: Iterable[str], before_last: str = "and") -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    *most, last = words
    return f"{', '.join(most)} {before_last} {last}" if most else last


def first_of(words: Sequence[str], most: int = 3) -> str:
    """``a, b``, and of more words than ``most`` ``a, b, c and 1,024 more``."""
    more = len(words) - most
    return ", ".join(words[:most]) + (f" and {more:,} more" if more > 0 else "")


def ordinal(n: int) -> str:
    """1st, 2nd, 3rd, 4th, 11th, ..."""
    ending = {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n}{'th' if n % 100 in (11, 12, 13) else ending}"
