"""What a parser is, what all of them share; articles, plurals and numbers in words."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING
from unittest import mock

from ood_lab.common.installed_packages import need
from ood_lab.metrics.answer_metrics import RecallOf

if TYPE_CHECKING:
    import inflect

YES, NO = "yes", "no"
#: ``Parser.source`` of a rule that nobody else has published.
OURS = "ours"
_LETTER = r"[^\W\u3005\u3040-\u30ff\u4e00-\u9fff]"
_WORD_LETTER = re.compile(r"[^\W\d_]")
#: Letters that are neither Latin nor Greek, as in formulas, nor Chinese nor Japanese.
_FOREIGN = re.compile(r"(?![A-Za-zÀ-ɏͰ-ϿḀ-ỿ\u3005\u3040-\u30ff\u4e00-\u9fffＡ-ｚ])[^\W\d_]")
_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)?")


@dataclass(frozen=True)
class Parser:
    """A rule that reads replies, and whose it is.

    Attributes:
        name: that questions and ``task.parser`` use.
        source: whose rule it is to the letter, with the commit that was read; :data:`OURS`.
        says: what it takes for an answer.
        otherwise: what becomes of other replies.
        rule: from the texts of reply and question to what the reply says; None where that is
            nothing. Published rules do not look at the question.
        recall_of: which questions recall is a share of where its source computes it.
    """

    name: str
    source: str
    says: str
    otherwise: str
    rule: Callable[[str, str], str | None]
    recall_of: RecallOf = "asked"

    def __call__(self, reply: str, question: str = "") -> str | None:
        """What the reply says to the question."""
        return self.rule(reply, question)


def parser(
    source: str, says: str, otherwise: str = "unparsed", recall_of: RecallOf = "asked"
) -> Callable[[Callable[[str], str | None]], Parser]:
    """Makes a parser of a function of the reply, named after it; see :class:`Parser`."""
    return lambda rule: Parser(
        rule.__name__, source, says, otherwise, lambda reply, _: rule(reply), recall_of
    )


def parser_with_question(says: str) -> Callable[[Callable[[str, str], str | None]], Parser]:
    """The same of a function of reply and question, a rule of ours."""
    return lambda rule: Parser(rule.__name__, OURS, says, "unparsed", rule)


def whole_word(words: str) -> str:
    """Pattern of a text that is no part of a word; Chinese and Japanese words have no borders."""
    pattern = r"\s+".join(map(re.escape, words.split()))
    return rf"(?<!{_LETTER}){pattern}(?!{_LETTER})"


def only(words: Collection[str | None]) -> str | None:
    """The only one; None where there is none, or several."""
    return next(iter(words)) if len(words) == 1 else None


def is_foreign(reply: str) -> bool:
    """Whether most letters of a reply are of a script that no rule of ours reads."""
    foreign = len(_FOREIGN.findall(reply))
    return foreign > len(_WORD_LETTER.findall(reply)) / 2


def words_of(reply: str) -> list[str]:
    """Its words in lower case, without the punctuation around them."""
    return _WORD.findall(reply.lower())


@cache
def english() -> inflect.engine:
    """Inflect's rules; the package is slow to load, and is loaded when first asked for.

    Raises:
        UserError: it is missing.
    """
    need("inflect", "lvlm", "grammar (articles, plurals, numbers in words)")
    import typeguard

    # It rewrites each of its methods, to check types, whenever it is loaded: 2.4 of 2.5 seconds.
    with mock.patch.object(typeguard, "typechecked", lambda method: method):
        import inflect

    return inflect.engine()
