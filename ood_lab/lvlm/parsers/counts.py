"""Counts: what number a reply gives of the things in the question."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from ood_lab.lvlm.parsers.answer_words import plain
from ood_lab.lvlm.parsers.asked_things import Asked, asked_by
from ood_lab.lvlm.parsers.base import NO, is_foreign, parser_with_question, words_of
from ood_lab.lvlm.parsers.chinese_japanese import (
    CHARACTERS,
    MEASURES,
    is_in_characters,
    said_in_characters,
    with_digits,
)
from ood_lab.lvlm.parsers.explicit_answers import explicit_answers, settled
from ood_lab.lvlm.parsers.sentence_claims import UNITS, is_refusal, said_by_sentences

_TEENS = ["ten", "eleven", "twelve", *(f"{unit}teen" for unit in ("thir", "four", "fif", "six"))]
_TEENS += ["seventeen", "eighteen", "nineteen"]
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_WORDS = {word: value for value, word in enumerate([*UNITS, *_TEENS], start=1)}
_WORDS |= {word: 10 * value for value, word in enumerate(_TENS, start=2)}
_UNIT, _TEEN, _TEN = map("|".join, (UNITS, _TEENS, _TENS))
_BELOW_100 = rf"(?:(?:{_TEN})(?:[- ](?:{_UNIT}))?|{_TEEN}|{_UNIT})"
#: From one to ten in other languages that are read.
_FOREIGN = {
    word: value
    for line in (
        "un deux trois quatre cinq _ sept huit neuf dix",
        "une dos tres cuatro cinco seis siete ocho nueve diez",
        "una dois três quatro _ sechs sieben oito neun zehn",
        "ein zwei drei vier fünf _ sete acht nove dez",
        "eine duas",
    )
    for value, word in enumerate(line.split(), start=1)
    if word != "_"
}
_WORDS |= _FOREIGN
#: Digits, or words below 1,000, the longest first. "No one" is no number.
_NUMBER = (
    r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.0+(?!\d))?|(?<!\bno[ -])\b"
    rf"(?:(?:{_UNIT}|a) hundred(?:(?: and)? {_BELOW_100})?|{_BELOW_100}|hundred|zero"
    rf"|{'|'.join(_FOREIGN)})\b"
)
#: Stands for what is no one number: a range, a bound, a fraction, a negative number.
_NONE = "§"
_NOUNS = r"(?:\s+(?!and\b|or\b|to\b)[a-z-]+){0,3}?"
_ABOUT = r"(?:(?:about|approximately|around|roughly|exactly|only|just|actually|even)\s+)*"
_OR = r"\s*,?\s*\b(?:or|oder|ou)\b(?: maybe| perhaps| possibly)?\s+"
_TO = r"\s*(?:\b(?:to|bis|à|a)\b|[–—〜/]|或者?|到|至|か|(?<=\d)\s?-(?=\s?\d))\s*"
_BOUND = (
    r"(?:(?:at (?:the )?(?:least|most|(?:an? )?(?:minimum|maximum))|almost|nearly|as (?:many"
    r"|few) as|upwards of|(?:more|less|fewer"
    r"|greater|other) than|over|under|above|below|up to"
    r"|not more than|no (?:more|fewer|less) than|(?:maximum|minimum) of|(?:mindestens|höchstens"
    r"|mehr als|au moins|au plus|plus de|al menos|más de|pelo menos|mais de))\b|(?<![-=])[<>≥≤]=?"
    r"|至少|最多|至多|大于|小于|超过|超過|不到|多于|少于|不超过|不止|少なくとも)"
)
_DECLINED = (
    rf"\bbetween N{_NOUNS}\s+and\s+N",
    rf"N{_NOUNS}(?:{_OR}{_ABOUT}N)+|N[{MEASURES}]?{_TO}{_ABOUT}N",
    rf"\ba{_NOUNS}\s+or (?:two|three|more)\b",
    rf"N[^.;\n]{{0,20}}[,(]\s*(?:or |and )?(?:maybe|possibly|perhaps|could be"
    rf"|might be)\s+{_ABOUT}N",
    rf"{_BOUND}\s*{_ABOUT}N",
    r"N[^.;,\n]{0,20}?\b(?:at (?:the )?(?:least|most)|(?:quarters?|thirds?|fifths?|halves) of)\b",
    r"N\s*(?:\+(?!\s*\d)|plus\b|or (?:more|fewer|less)\b|以上|以下|多[只个個])",
    r"(?:(?<![\w)])-(?=\d)|\b(?:minus|negative)\s+)N",
    r"\d*\.\d*[1-9]\d*|\d+\s*[/⁄]\s*\d+|\bhalf\b|\banother\b(?=\s+[a-z])",
    r"\b(?:maybe|perhaps|possibly|probably|or) (?:even )?(?:more|an? (?:third|fourth|fifth)"
    r"|one more)\b",
    r"\b(?:dozens|hundreds|tens|thousands)\b",
    r"\b(?:may|might|could) be (?:\w+ )?(?:more|others|another|further|additional)\b",
)
#: Words of numbers, in digits.
_AS_DIGITS = (
    (r"\bhalf[ -](?:an? )?dozen\b", "6"),
    (r"\b(?:three|3) dozen\b", "36"),
    (r"\bboth (?=[a-z]+s\b)", "2 "),
    (rf"[一1][{MEASURES}][^，,。]{{0,3}}[都也](?:没有?|不)", "没有"),
    (r"\b(?:a|one) dozen\b(?! and)|(?<!\w)(?<!\w )dozen\b", "12"),
    (r"\b(?:two|2) dozen\b", "24"),
    (r"\ba (?:couple|pair)(?: of)?\b", "2"),
    (r"\bnot (?:(?:a|one) single|one)\b", "no"),
    (r"\ba trio(?: of)?\b", "3"),
    (r"半打", "6"),
    (r"一打", "12"),
)
#: Numbers that count nothing: of steps, pictures and hours, of the marks of a list, of parts.
_NO_COUNT = (
    r"\b(?:step|part|image|figure|no\.|number|question|row|shelf|picture|photo|camera"
    r"|player)\s+#?\d+\b(?!\s*dogs)"
    r"|\b(?:one|1|single)\s+(?:image|picture|photo|photograph|side|hand)\b"
    r"|(?:^|\n)\s*\d+[.)](?=\s+\S)"
    r"|\b(?:[12]\d{3})(?=\s+(?:photo|image|picture))|\b(?:in|since|from|of|until"
    r"|year)\s+[12]\d{3}\b"
    r"|\d+(?:\.\d+)?\s*(?:%|percent\b|(?:years?|months?|days?|hours?|minutes?|seconds?|meters?"
    r"|metres?|feet|cm"
    r"|mm|km|kg|am|pm|a\.m\.|p\.m\.|o'clock)\b)|\d+[/:.]\d+(?:[/:.]\d+)+|\b\d{1,2}:\d{2}\b"
    r"|\b(?:confidence|probability|score|certainty)\W*(?:(?:of|is)\W*)?\d*\.?\d+"
    r"|\d+(?:st|nd|rd|th)\b|#\d+"
    r"|不是\s*N|(?:\bnot|\bcannot|n't)\s+(?:(?:see|find|spot)\s+)?(?!one\b)N(?:\s+[a-z-]+)?"
    r"|\b(?:this|that|each|which|any|some|every)\s+one\b"
    r"|\b(?:says|reads|with|labell?ed|numbered|marked)\s+(?:an?\s+)?\d+\b(?=\s+(?:on|but)\b|\W*$)"
)
#: Where a total or final number stands; the last of a kind counts.
_TOTALS = (
    rf"\b(?:there are|see|count)\s+{_ABOUT}(N)(?:\s+[\w-]+){{0,3}}\s+(?:in total|altogether"
    rf"|in all)",
    r"(?:\b(?:total|altogether|sum|final (?:count|number))\b[^.\d\n]{0,60}?|=\s*"
    r"|[一总總]?共[有计計]?\s*|合計)(N)",
    r"(N)(?:\s+[\w-]+){0,3}\s+(?:in\s+total|altogether|in\s+all|total|overall|together)\b",
    r"\b(?:so|therefore|thus|hence|makes|making|that's)\s+(?:[a-z']+\s+){0,2}?(N)",
    r":\s*(N)\W*$",
)
#: "5 animals, 3 of which are THING", "of the 5 objects, 2 are THING".
_WHICH_ARE = (
    r"\s+(?:of (?:them|which|these|those)(?:\s+(?:is|are|were))?|is|are|were)\s+(?:[\w-]+\s+){0,2}?"
)
_LABEL = re.compile(rf"(?:^|[\n,;{{])\W*(?!(?:{_NUMBER})\s)(?:[a-z]+ ){{0,2}}[a-z]+s\W*[:=]\s*$")
_PART = re.compile(r"\s+of\s+(?:the|them|these|which|those|whom|its)\b")
_PLACE = re.compile(
    r"\b(?:left|right|top|bottom|upper|lower|foreground|background|front|behind|back|middle|center"
    r"|centre|above|below|inside|outside|table|floor|shelf|ground)\b|[左右前后後上下]边?"
)
#: What may follow a number that stands for itself; any other word is what it counts.
_BARE = re.compile(
    r"\s*(?:$|[^\w\s'-]|-\s|(?:in|on|at|to|from|near|beside|by|next|behind|under|over|above|below"
    r"|with"
    r"|and|or|but|so|is|are|was|were|of|more|total|altogether|overall|here|there|visible|present"
    r"|shown|that|which|who|i|as|for|only|ones?|\w+ing|\w+ed|\w+ly)\b)"
)
_EXISTS = re.compile(
    r"\b(?:hay|il y a|es gibt|há|existem|on voit|je vois|veo|vejo|ich sehe|se ven)\b"
)
_AFTER_MEASURE = re.compile(
    rf"\s*(?:[{MEASURES}][的の]?|(?![{MEASURES}]))(?=[\u3005\u30a0-\u30ff\u4e00-\u9fff])"
)
_TOPIC = re.compile(r"([\u3005\u30a0-\u30ff\u4e00-\u9fff]+)[はがも]\s*$")


#: More numbers, or digits of one, are those of a model that repeats itself.
_MOST, _DIGITS = 100, r"\d{13,}|\d[\d,]{40,}"


class _Mention(NamedTuple):
    """A number in a text: where it is, its value, and whether it counts the thing.

    ``value`` is None of what is no one number; ``thing`` is None where it stands for itself.
    """

    start: int
    end: int
    value: int | None
    thing: bool | None


def _with_numbers(way: str) -> str:
    return re.sub(
        r"\bN\b|(?<=\w)N(?=\[)",
        lambda _: f"(?:{_NUMBER})",
        way.replace("(N)", f"(?P<n>{_NUMBER}|{_NONE})"),
    )


_VAGUE = re.compile("|".join(map(_with_numbers, _DECLINED)))
_NOTHING = re.compile(_with_numbers(_NO_COUNT))
_SUMS = [re.compile(_with_numbers(way)) for way in _TOTALS]
#: What counts the thing: "3 big dogs", "3 of which are dogs", "dogs: 3"; or only some of it.
_COUNTED = (
    r"(?:[ \t]+(?!(?:and|or|of|in|on|at|to|with|is|are|next|near|from|by)\b"
    rf"|{_NUMBER})[\w-]+){{0,3}}?[ \t]+"
)
_ANY = re.compile(f"{_NUMBER}|{_NONE}")
_LIST = re.compile(r"(?:^|\n)\s*(\d+)[.)]\s+([^\n]*)")


@parser_with_question(
    "an explicit answer; else a total; else the number of the named object; else the only "
    "number, or the sum by side; `no` is 0 and `a` is 1",
)
def number(reply: str, question: str) -> str | None:
    """A count: digits (thousands with commas) or words from zero to 999.

    Only an explicit answer counts where there is one. Else what comes last: a total or final
    number, the number of the very things, their sum over the sides of a picture, the only number.
    "Step 1", "one image" and marks of lists count nothing, and other things are not counted.
    A range, a bound, a fraction, a negative number and two different numbers are no count. Without
    a number, ``no`` and ``none`` are 0, ``a`` and ``an`` are 1.
    """
    subject = asked_by(question)
    if is_foreign(reply):
        return None
    for part in explicit_answers(reply):
        line = _prepared(re.split(r"\n|[.;]\s", part.strip())[0])
        results = [_mention(item, line, subject) for item in _ANY.finditer(line)]
        if results := [item for item in results if item.thing] or results:
            values = {item.value for item in results}
            return str(results[0].value) if len(values) == 1 and None not in values else None
    text = _prepared(reply)
    if is_refusal(text):
        return None
    count = settled(text, partial(_count_in, subject=subject, question=question))
    return count or _listed(reply, subject)


def _prepared(reply: str) -> str:
    """A plain text in which every number is digits or words, and what is no number is marked."""
    text = plain(re.sub(_DIGITS, _NONE, re.sub(r"[~～−]", "-", reply)))
    text = re.sub(r"(?<=\d)\.0+(?!\d)", "", with_digits(text) if CHARACTERS.search(text) else text)
    for words, digits in _AS_DIGITS:
        text = re.sub(words, digits, text)
    return _VAGUE.sub(_NONE, _NOTHING.sub(lambda m: "\n" if m[0][0] == "\n" else " ", text))


def _listed(reply: str, subject: Asked) -> str | None:
    """The length of a list that is numbered from 1, each of whose items is the thing."""
    items = _LIST.findall(plain(reply))
    is_list = len(items) > 1 and [int(n) for n, _ in items] == [*range(1, len(items) + 1)]
    things = subject.thing is not None and all(subject.thing.search(item) for _, item in items)
    return str(len(items)) if is_list and things else None


def _count_in(text: str, subject: Asked, question: str) -> str | None:
    numbers = [*_ANY.finditer(text)]
    if len(numbers) > _MOST:
        return None
    mentions = [_mention(results, text, subject) for results in numbers]
    usable = [item for item in mentions if item.thing is not False]
    values = {item.start: item for item in usable}
    for way in _SUMS:
        places = [results.start("n") for results in way.finditer(text)]
        if totals := [values[place] for place in places if place in values]:
            return _text(totals[-1].value)
        if way is _SUMS[-2] and (total := _by_side(text, usable)):
            return str(total)
    if subject.thing is not None and said_by_sentences(text, subject, question) == NO:
        return "0"
    if is_in_characters(text) and not mentions:
        return "0" if said_in_characters(text, subject.names) == NO else None
    if any(item.value is None for item in usable):
        return None
    if counted := [item for item in usable if item.thing] or usable:
        return _text(_agreed([item.value or 0 for item in counted]))
    return _implied(text, subject) if subject.thing is not None or not mentions else None


def _by_side(text: str, mentions: Sequence[_Mention]) -> int | None:
    """The sum of numbers each of which has a side of the picture of its own."""
    if len(mentions) < 2 or any(item.value is None for item in mentions):
        return None
    starts, ends = [item.start for item in mentions], [item.end for item in mentions]
    for windows in (
        zip(ends, [*starts[1:], None], strict=True),
        zip([0, *ends[:-1]], starts, strict=True),
    ):
        sides = [_PLACE.findall(text[begin:end]) for begin, end in windows]
        each_one = all(len(side) == 1 for side in sides)
        if each_one and len({side[0] for side in sides}) == len(sides):
            return sum(item.value or 0 for item in mentions)
    return None


def _agreed(numbers: list[int]) -> int | None:
    """The number that is given again, ends a count from one, or is the sum of the others."""
    if len(set(numbers)) == 1:
        return numbers[0]
    last = numbers[-1]
    if last > 1 and numbers in ([*range(1, last + 1)], [*range(1, last + 1), last]):
        return last
    for total, parts in ((numbers[0], numbers[1:]), (last, numbers[:-1])):
        if total == sum(parts) and len(parts) > 1:
            return total
    return None


def _implied(text: str, subject: Asked) -> str | None:
    """What a text without a number says: none, or one."""
    if subject.thing is not None:
        singles = re.findall(
            rf"\ban?\b(?! few)(?:\s+(?!and\b|or\b)[\w-]+){{0,2}}\s+{subject.thing.pattern}", text
        )
        none = re.search(r"\bnone\b(?! of the)", text) and not singles
        return "0" if none else "1" if len(singles) == 1 else None
    implied = [word in ("a", "an") for word in words_of(text) if word in ("no", "none", "a", "an")]
    return str(int(implied[0])) if implied else None


def _mention(results: re.Match[str], text: str, subject: Asked) -> _Mention:
    value = None if results[0] == _NONE else _value(results[0])
    before, after = text[: results.start()], text[results.end() :]
    return _Mention(
        results.start(),
        results.end(),
        value,
        _counts_thing(results[0], before, after, text, subject),
    )


def _counts_thing(word: str, before: str, after: str, text: str, subject: Asked) -> bool | None:
    """Whether a number counts the thing; None where it stands for itself."""
    if is_in_characters(text):
        noun = _AFTER_MEASURE.match(after)
        topic = _TOPIC.search(before)
        if not subject.names or not (noun or topic):
            return None
        rest = after[noun.end() :] if noun else ""
        return rest.startswith(subject.names) or bool(topic and topic[1].endswith(subject.names))
    if subject.thing is None:
        return None
    thing, label = subject.thing.pattern, _LABEL.search(before)
    if label is not None or re.match(rf"\s+of\s+the\s+{thing}", after):
        return label is not None and re.search(thing, label[0]) is not None
    if re.match(rf"(?:{_WHICH_ARE}|{_COUNTED}){thing}", after):
        return True
    if word in _FOREIGN or _EXISTS.search(text):
        return None
    if _PART.match(after) and (_ANY.search(before + after) or re.search(r"[a-z]s\b", before)):
        return re.search(thing, before) is not None and not _ANY.search(before + after)
    return None if _BARE.match(after) else False


def in_digits(word: str) -> str:
    """A number in English or Chinese words in digits; other texts are unchanged."""
    if word in _FOREIGN or not re.fullmatch(_NUMBER, word):
        return with_digits(word)
    return word if word[0].isdigit() else str(_value(word))


def _text(value: int | None) -> str | None:
    return None if value is None else str(value)


def _value(reply: str) -> int:
    """A number in digits or words."""
    if reply[0].isdigit():
        return int(float(reply.replace(",", "")))
    value = 0
    for word in re.split("[ -]", reply):
        value = max(value, 1) * 100 if word == "hundred" else value + _WORDS.get(word, 0)
    return value
