"""Free text: what a reply answers, and whether that is right."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ood_lab.lvlm.parsers.answer_words import plain
from ood_lab.lvlm.parsers.base import OURS, parser, whole_word
from ood_lab.lvlm.parsers.explicit_answers import explicit_answers, settled
from ood_lab.lvlm.parsers.sentence_claims import is_refusal

#: Stands for a right answer in a clause.
_RIGHT = "\ue000"
#: Where an explicit answer ends, and its reason begins.
_REASON = re.compile(r"\.\s|\n|;|[,(]?\s+(?:although|though|but|because|since|while)\b")
_CLAUSE = re.compile(
    r"[.!;\n。！；](?!\d)|,\s+(?=(?:it|this|that|but|so)\b)|,\s+(?=an?\s(?:(?!\bor\b)[^,])*$)"
    r"|[，,](?=[而但是没])"
    r"|(?<!anything )(?<!everything )\b(?:but|however|although|though|whereas)\b|而是|但是?|—|–"
)
#: What denies the answer behind it, in the same clause; and the answer before it.
_DENIED = re.compile(
    rf"(?:\b(?:not(?! only)|no|never|neither|nor|cannot|without|unlike|than|except|but not"
    rf"|instead of|rather than|lacks?|hardly|barely)\b|n't\b"
    rf"|不是|没有?|沒有?|并非|不|无|無).*?{_RIGHT}"
    rf"|{_RIGHT}[^,]*?(?:\b(?:is|are|was)\s*(?:not\b|n't)|\b(?:is|are)\s+(?:wrong|incorrect"
    rf"|excluded|absent)|(?:では|じゃ)(?:あり|な[いく])|ない|ません)"
    rf"|\b(?:anything|everything) but\b.*?{_RIGHT}"
)
#: Alternatives, of which the answer is one.
_OPEN = re.compile(
    rf"\b(?:whether|if|maybe|perhaps|possibly|anything|(?<!no )doubt|don't know|not sure|no idea"
    rf"|(?:cannot|can't"
    rf"|unable to) \w+)\b"
    rf"|{_RIGHT}\s*(?:/|,?\s*\b(?:and/)?or\b|或)|(?:/|\b(?:or|either)\b|或"
    rf"|か(?=[^。？?]))[^;]*?{_RIGHT}|{_RIGHT}か(?=\w)"
    rf"|{_RIGHT}[^;.]*?,[^;.]*\bor\b|\b(?:could|might|may) be\b[^;]*?(?:,|\bor\b)|\?\s*$|？"
)
#: What a correction begins with: "actually, it is", "no, a cat".
_NEW_ANSWER = re.compile(
    r"\W*(?:it's|it is|this is|that's|the answer|an?|the)\b|\W*(?:[\w'-]+\W*){1,3}$"
)


@parser(OURS, "its text")
def text(reply: str) -> str | None:
    """What it answers, in lower case: only an explicit answer, else all; None where it declines."""
    parts = [_REASON.split(part.strip())[0] for part in explicit_answers(reply)]
    if explicit := next((part for part in parts if bare(part)), None):
        return plain(explicit)
    words = plain(reply)
    if is_refusal(words):
        return None
    return settled(words, lambda part: _whole(part, words))


def _whole(part: str, reply: str) -> str | None:
    if not bare(part) or (
        len(part) < len(reply) and part == reply[-len(part) :] and not _NEW_ANSWER.match(part)
    ):
        return None
    return (
        re.sub(r"^.*\?\s+(?:no\W+)?(?=\S)", "", part, flags=re.S).strip() if "?" in part else part
    )


def bare(reply: str) -> str:
    """A text in lower case without articles, punctuation and markup, to be compared."""
    words = re.findall(r"-?\d+(?:[.:/]\d+)*|[^\W_]+(?:'[^\W_]+)?", _numbers(plain(reply)))
    return " ".join([word for word in words if word not in ("a", "an", "the")] or words)


def is_right(answer: str, truths: Sequence[str]) -> bool:
    """Whether an answer has one of the right ones in it, and neither denies it nor leaves it open.

    Words are compared as wholes, Chinese and Japanese by characters; numbers as wholes: "0.5" has
    no 5. ``not a dog``, ``a dog or a wolf`` and ``maybe a dog, maybe a fox`` are not ``dog``.

    Args:
        answer: see :func:`text`.
        truths: right answers, any of which will do.
    """
    if (words := bare(answer)) and words in map(bare, truths):
        return True
    ways = "|".join(
        _pattern(item) for item in sorted(map(plain, truths), key=len, reverse=True) if item
    )
    text = re.sub(ways, _RIGHT, _numbers(answer)) if ways else answer
    text = re.sub(
        rf"(?:\beither\s+(?:an?\s+)?)?{_RIGHT}(?:\s*(?:,|/|\bor\b|,\s*or\b)\s*(?:an?\s+"
        rf"|the\s+)?{_RIGHT})+",
        _RIGHT,
        text,
    )
    text = re.sub(r"\bnot\s+(?:an?\s+|the\s+)?\w+,\s+(?!or\b|nor\b|and\b)", "", text)
    clauses = [part for part in _CLAUSE.split(text) if _RIGHT in part]
    return (
        bool(clauses)
        and not _OPEN.search(" ".join(clauses))
        and any(not _DENIED.search(part) for part in clauses)
    )


def _numbers(text: str) -> str:
    """A text whose numbers have neither commas nor the fraction ".0"."""
    return re.sub(r"(?<=\d),(?=\d{3}\b)|(?<=\d)\.0+(?!\d)", "", text)


def _pattern(words: str) -> str:
    pattern = whole_word(_numbers(re.sub(r"^(?:an?|the)\s+", "", words)))
    return rf"(?<![\d][.,:/])(?<![-.]){pattern}(?![.,:/–-]\d)" if words[:1].isdigit() else pattern
