"""P(yes), and P(letter) of options, from the log-probabilities of a reply's tokens."""

from __future__ import annotations

import math
from collections.abc import Callable
from string import ascii_uppercase
from typing import Any

from ood_lab.lvlm.answers.reply_text import without_reasoning
from ood_lab.lvlm.parsers import PARSERS, YES
from ood_lab.lvlm.parsers.answer_words import plain, said_at_start

#: What a text says; None = nothing.
Reading = Callable[[str], str | None]


def p_yes_of(logprobs: Any) -> float | None:
    """P(yes) of the token that holds a reply's answer, renormalised over yes and no.

    ``sum of p over alternatives that say yes / that say yes or no``, in all their spellings. The
    token is the first one, reasoning aside, that says what the reply says; ``**`` before it and
    "no" before a noun are none.

    Args:
        logprobs: of a choice, as OpenAI's servers give them; anything else has no P(yes), nor has
            a token of whose alternatives all say the same.
    """
    said = _chances(logprobs, _word, lambda reply: PARSERS["default"](without_reasoning(reply)))
    return said[YES] if len(said) == 2 else None


def p_options_of(logprobs: Any, options: int) -> dict[str, float]:
    """P(letter) of the token that holds a reply's option, renormalised over the letters.

    The token is the first that is a letter of an option, reasoning aside.

    Args:
        logprobs: as of :func:`p_yes_of`.
        options: how many there are; of 0, nothing is known.

    Returns:
        By letter; empty where no token is a letter.
    """
    letters = [*ascii_uppercase[:options]]

    def letter(token: str) -> str | None:
        said = token.strip(" \n\t.,:;()[]*'\"")
        return said if said in letters else None

    return _chances(logprobs, letter)


def _chances(logprobs: Any, says: Reading, whole: Reading | None = None) -> dict[str, float]:
    """Probabilities of what the alternatives of one token say, which sum to 1; empty: unknown.

    Args:
        logprobs: of a choice.
        says: what a token says; None = nothing.
        whole: what the reply says; None = the first token that says anything counts. Else the
            first one that says the same.
    """
    found: dict[str, float] = {}
    try:
        tokens = [(str(token["token"]), token["top_logprobs"]) for token in logprobs["content"]]
        thought = [n for n, (text, _) in enumerate(tokens) if "</think" in text]
        own = [(says(text), others) for text, others in tokens[(thought or [-1])[-1] + 1 :]]
        read = whole("".join(text for text, _ in tokens)) if whole else None
        held = (others for said, others in own if said and (whole is None or said == read))
        for other in next(held, ()):
            if said := says(str(other["token"])):
                found[said] = found.get(said, 0.0) + math.exp(float(other["logprob"]))
        return {said: p / sum(found.values()) for said, p in found.items() if p > 0}
    except (KeyError, TypeError, ValueError):
        return {}


def _word(token: str) -> str | None:
    """What a token says by itself."""
    return None if token.strip().isdigit() else said_at_start(plain(token))
