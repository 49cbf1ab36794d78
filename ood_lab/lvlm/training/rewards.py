"""Rewards of ORIC's visual reinforcement fine-tuning: functions of only a reply and the truth."""

from __future__ import annotations

import re
from collections.abc import Callable

from ood_lab.lvlm.parsers import NO, YES

#: Maps a reply and the right answer (yes or no, or ``<SOLUTION>yes</SOLUTION>``) to 0 or 1.
Reward = Callable[[str, str], float]

_WHOLE = re.compile(
    r"\s*<REASONING>(?:(?!</REASONING>).)*</REASONING>\s*"
    r"<SOLUTION>(?:(?!</SOLUTION>).)*</SOLUTION>\s*",
    re.DOTALL,
)
_SOLUTION = re.compile(r"<SOLUTION>(.*?)</SOLUTION>", re.DOTALL | re.IGNORECASE)
_YES_NO = re.compile(r"\b(yes|no)\b", re.IGNORECASE)


def format_reward(reply: str, truth: str) -> float:
    """1 where the whole reply is ``<REASONING>...</REASONING> <SOLUTION>...</SOLUTION>``.

    White space around it does not matter; each closing tag may occur once.

    Args:
        reply: of the model.
        truth: not looked at.
    """
    closed = all(reply.count(tag) == 1 for tag in ("</REASONING>", "</SOLUTION>"))
    return float(closed and _WHOLE.fullmatch(reply) is not None)


def accuracy_reward(reply: str, truth: str) -> float:
    """1 where the reply's answer is right.

    The answer is the text in ``<SOLUTION>`` if there is one, else the last whole word that is yes
    or no; case does not matter, nor do spaces and underscores in the tag.
    """
    return float(solution_of(reply) == solution_of(truth))


def solution_of(text: str) -> str | None:
    """What a reply, or the solution of a training file, answers; None where it is not yes or no."""
    tagged = _SOLUTION.search(text)
    if tagged is not None:
        answer = tagged[1].strip().replace(" ", "").replace("_", "").lower()
        return answer if answer in (YES, NO) else None
    found = _YES_NO.findall(text)
    return found[-1].lower() if found else None
