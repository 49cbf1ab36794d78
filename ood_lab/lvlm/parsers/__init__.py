"""Parsers: what a reply to a question says, or None where it says nothing that can be read.

Every parser is a function of the texts of reply and question, so answers are parsed again without
being asked again. A question names its parser; ``task.parser=NAME`` replaces it by another.
"""

from __future__ import annotations

from collections.abc import Mapping

from ood_lab.common.hints import check_known
from ood_lab.lvlm.parsers import choices, counts, free_text, published_rules, yes_no
from ood_lab.lvlm.parsers.base import NO, OURS, YES, Parser

__all__ = ["NO", "OURS", "PARSERS", "YES", "YES_NO_PARSERS", "Parser", "parser_named", "parser_of"]

#: By the name that questions and ``task.parser`` use.
PARSERS: Mapping[str, Parser] = {
    parser.name: parser
    for parser in (
        yes_no.default,
        yes_no.strict,
        published_rules.pope,
        published_rules.amber,
        published_rules.ode,
        published_rules.lmms_pope,
        published_rules.lmms_mme,
        published_rules.vlmeval,
        published_rules.mmbench,
        counts.number,
        choices.choice,
        choices.option,
        free_text.text,
    )
}
#: Those that read yes or no, and may stand for each other.
YES_NO_PARSERS = tuple(
    name for name in PARSERS if name not in ("number", "choice", "option", "text")
)


def parser_named(name: str) -> Parser:
    """The parser of that name.

    Raises:
        UserError: there is none.
    """
    check_known([name], PARSERS, "there is no parser '{name}'")
    return PARSERS[name]


def parser_of(named: str, preferred: str | None) -> str:
    """The one that a question ``named``, or the ``preferred`` one where that reads yes or no."""
    return preferred if preferred and named in YES_NO_PARSERS else named
