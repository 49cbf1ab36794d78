"""P(yes), and P(letter) of options, from the log-probabilities of a reply's tokens."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import partial
from itertools import accumulate
from string import ascii_uppercase
from typing import Any

from ood_lab.lvlm.parsers import PARSERS, YES
from ood_lab.lvlm.parsers.answer_words import plain, said_at_start
from ood_lab.lvlm.parsers.choices import chosen_letter
from ood_lab.lvlm.parsers.reply_text import without_reasoning

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
    reply = _chances(logprobs, _word, PARSERS["default"])
    return reply[YES] if len(reply) == 2 else None


def p_options_of(logprobs: Any, options: int) -> dict[str, float]:
    """P(letter) of the token that holds a reply's option, renormalised over the letters.

    The reply is read by its letters (:func:`~ood_lab.lvlm.parsers.choices.chosen_letter`): of
    "A bronze lid. Answer: B" the token is the last one. A reply that begins with its letter has it
    in the first token that is this letter, reasoning aside.

    Args:
        logprobs: as of :func:`p_yes_of`.
        options: how many there are; of 0, nothing is known.

    Returns:
        By letter; empty where the reply chooses none by its letter.
    """
    letters = dict.fromkeys(ascii_uppercase[:options], "")

    def letter(token: str) -> str | None:
        reply = token.strip(" \n\t.,:;()[]*'\"")
        return reply if reply in letters else None

    return _chances(logprobs, letter, partial(chosen_letter, options=letters), last=True)


def _chances(logprobs: Any, says: Reading, whole: Reading, last: bool = False) -> dict[str, float]:
    """Probabilities of what the alternatives of one token say, which sum to 1; empty: unknown.

    Args:
        logprobs: of a choice.
        says: what a token says; None = nothing.
        whole: what the reply says without its thoughts; the first token that says the same counts.
        last: the last one does, unless the reply begins with it.
    """
    chances: dict[str, float] = {}
    try:
        tokens = [(str(token["token"]), token["top_logprobs"]) for token in logprobs["content"]]
        ends = [*accumulate(len(text) for text, _ in tokens)]
        reply = without_reasoning("".join(text for text, _ in tokens))
        if (answer := whole(reply)) is None:
            return {}
        texts = [
            item for item, end in zip(tokens, ends, strict=True) if end > ends[-1] - len(reply)
        ]
        holders = [place for place, (text, _) in enumerate(texts) if says(text) == answer]
        begins = whole(re.split(r"[.,:;)\n]|\s", reply.strip("*( "), maxsplit=1)[0]) == answer
        place = holders[-1 if last and not begins else 0]
        for other in texts[place][1]:
            if word := says(str(other["token"])):
                chances[word] = chances.get(word, 0.0) + math.exp(float(other["logprob"]))
        return {word: p / sum(chances.values()) for word, p in chances.items() if p > 0}
    except (KeyError, IndexError, TypeError, ValueError):
        return {}


def _word(token: str) -> str | None:
    """What a token says by itself."""
    return None if token.strip().isdigit() else said_at_start(plain(token))
