"""What a parser is, and what all of them share."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

YES, NO = "yes", "no"
#: ``Parser.source`` of a rule that nobody else has published.
OURS = "ours"
_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)?")


@dataclass(frozen=True)
class Parser:
    """A rule that reads replies, and whose it is.

    Attributes:
        name: that questions and ``task.parser`` use.
        source: whose rule it is to the letter, with the commit that was read; :data:`OURS`.
        says: what it takes for an answer.
        otherwise: what becomes of other replies.
        rule: from the reply's text to what it says; None where that is nothing.
    """

    name: str
    source: str
    says: str
    otherwise: str
    rule: Callable[[str], str | None]

    def __call__(self, reply: str) -> str | None:
        """What the reply says."""
        return self.rule(reply)


def parser(
    source: str, says: str, otherwise: str = "unparsed"
) -> Callable[[Callable[[str], str | None]], Parser]:
    """Makes a parser of a function, named after it; see :class:`Parser`."""
    return lambda rule: Parser(rule.__name__, source, says, otherwise, rule)


def words_of(reply: str) -> list[str]:
    """Its words in lower case, without the punctuation around them."""
    return _WORD.findall(reply.lower())
