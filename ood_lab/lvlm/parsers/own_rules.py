"""Rules of our own."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ood_lab.lvlm.parsers.answer_words import plain, said_at_start, said_by_a_word
from ood_lab.lvlm.parsers.asked_things import asked_by
from ood_lab.lvlm.parsers.base import NO, OURS, YES, parser, parser_with_question, words_of
from ood_lab.lvlm.parsers.explicit_answers import explicit_answers
from ood_lab.lvlm.parsers.sentence_claims import is_refusal, said_by_sentences

_UNITS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
_TEENS = ["ten", "eleven", "twelve", *(f"{unit}teen" for unit in ("thir", "four", "fif", "six"))]
_TEENS += ["seventeen", "eighteen", "nineteen"]
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_WORDS = {word: value for value, word in enumerate([*_UNITS, *_TEENS], start=1)}
_WORDS |= {word: 10 * value for value, word in enumerate(_TENS, start=2)}
_UNIT, _TEEN, _TEN = map("|".join, (_UNITS, _TEENS, _TENS))
_BELOW_100 = rf"(?:(?:{_TEN})(?:[- ](?:{_UNIT}))?|{_TEEN}|{_UNIT})"
#: Digits, or words below 1,000, the longest first. "No one" is no number.
_NUMBER = (
    r"\d{1,3}(?:,\d{3})+(?!\d)|\d+|(?<!\bno[ -])\b"
    rf"(?:(?:{_UNIT}) hundred(?:(?: and)? {_BELOW_100})?|{_BELOW_100}|hundred|zero)\b"
)
#: What says a number where no number stands: "no car", "a car".
_IMPLIED = {"no": 0, "none": 0, "a": 1, "an": 1}
_SMALL = r"(?:\d+|two|three|four|five|six|seven|eight|nine|ten)"
#: Numbers that count nothing: of steps, of the picture, of the marks of a list.
_NO_COUNT = re.compile(
    r"\b(?:step|part|image|figure|no\.|number|question)\s+\d+\b"
    r"|\b(?:one|1|single)\s+(?:image|picture|photo|photograph|side|hand)\b"
    r"|(?:^|\n)\s*\d+[.)](?=\s+\S)"
    rf"|\bbetween {_SMALL} and {_SMALL}\b"
)
_ABOUT = r"(?:(?:about|approximately|around|roughly|exactly|only|just|at least|actually)\s+)*"
#: Where a total or final number stands; the last of a kind counts.
_TOTALS = (
    rf"\b(?:there are|see|count)\s+{_ABOUT}NUMBER(?:\s+[\w-]+){{0,3}}\s+(?:in total|altogether)",
    r"(?:\b(?:total|altogether|sum|final (?:count|number))\b[^.\d\n]{0,60}?|=\s*)NUMBER",
    r"NUMBER(?:\s+[\w-]+){0,3}\s+(?:in\s+total|altogether|in\s+all|total|overall|together)\b",
    r"\b(?:so|therefore|thus|hence|makes|making)\s+(?:[a-z']+\s+){0,2}?NUMBER",
    r":\s*NUMBER\W*$",
)
#: Where another number counts; the first.
_FIRST = (
    r"\b(?:see|count|counted|are|is|find|spot|shows?|contains?|has|have|identify)\s+"
    + _ABOUT
    + "NUMBER",
    "NUMBER",
)
_SOME = {r"\ba dozen\b": "12", r"\ba (?:couple|pair)(?: of)?\b": "2"}


@parser_with_question(
    "an explicit answer; else yes or no as first or last word; else a sentence about the object "
    "in the question",
)
def default(reply: str, question: str) -> str | None:
    r"""What a person reads, as far as rules can say, in this order.

    1. An explicit answer: "final answer: yes", "the answer is no", ``\boxed{}``, JSON,
       ``<answer>``, the letter of an option.
    2. A first or last word that is an answer by itself, in English, Chinese, French, German,
       Japanese, Portuguese or Spanish. "No" before a noun, "yes or no" and refusals are none.
    3. A sentence about the very object: there is, shows, contains, I see, and their negations.

    Else nothing.
    """
    asked, text = asked_by(question), plain(reply)
    for part in explicit_answers(reply):
        letter = asked.options and _letter(part, asked.options)
        if said := said_at_start(plain(asked.options[letter] if letter else part)):
            return said
    if is_refusal(text):
        return None
    if asked.options and (letter := _letter_of(reply, asked.options)):
        return said_at_start(plain(asked.options[letter]))
    return said_by_a_word(text) or said_by_sentences(text, asked, question)


@parser(OURS, "the only word, punctuation aside")
def strict(reply: str) -> str | None:
    """The reply is nothing but yes or no; case and the punctuation around it are ignored."""
    words = words_of(reply)
    return words[0] if len(words) == 1 and words[0] in (YES, NO) else None


@parser_with_question("the letter of an option")
def choice(reply: str, question: str) -> str | None:
    """The letter of an option: an explicit answer, a letter by itself, its only text."""
    options = asked_by(question).options
    for part in explicit_answers(reply):
        if letter := _letter(part, options):
            return letter
    if is_refusal(said := plain(reply)):
        return None
    return _letter_of(reply, options) or _named_option(said, options)


@parser_with_question("the text of an option")
def option(reply: str, question: str) -> str | None:
    """The letter of the only option whose text an explicit answer, or the whole reply, has."""
    options = asked_by(question).options
    said = [*map(plain, explicit_answers(reply)), "" if is_refusal(plain(reply)) else plain(reply)]
    return next(filter(None, (_named_option(part, options) for part in said)), None)


@parser(OURS, "its text")
def text(reply: str) -> str | None:
    """All that it says: an explicit answer, else the whole, in lower case; see :func:`bare`."""
    said = [re.split(r"\.\s|\n", part.strip())[0] for part in explicit_answers(reply)]
    return next(filter(None, map(bare, [*said, reply])), None)


def bare(said: str) -> str:
    """A text in lower case without articles, punctuation and markup, to be compared."""
    return " ".join(word for word in words_of(plain(said)) if word not in ("a", "an", "the"))


def _named_option(said: str, options: Mapping[str, str]) -> str | None:
    """The letter of the only option that a plain text names and does not deny.

    Of options within others, the longest is named.
    """
    texts = {letter: plain(own).strip(" .!") for letter, own in options.items()}
    named = []
    for letter in sorted(texts, key=lambda each: -len(texts[each])):
        not_ = r"(?P<not>\b(?:not|isn't|aren't)\s+(?:an?\s+|the\s+)?)?"
        way = rf"{not_}(?<!\w){re.escape(texts[letter])}(?!\w)"
        if any(found["not"] is None for found in re.finditer(way, said)):
            named.append(letter)
        said = re.sub(way, " ", said)
    return named[0] if len(named) == 1 else None


@parser_with_question(
    "an explicit answer; else a total; else the number of the named object; else the first "
    "number; `no` is 0 and `a` is 1",
)
def number(reply: str, question: str) -> str | None:
    """A count: digits (thousands with commas) or words from zero to 999.

    An explicit answer comes first, then a total or final number, the number of the very things, a
    number after "I see" or "there are", and the first number. "Step 1", "one image" and marks of
    lists are none. Without a number, ``no`` and ``none`` are 0, ``a`` and ``an`` are 1,
    whichever is first: "No, there are 3" is 3.
    """
    text, asked = plain(reply), asked_by(question)
    for part in explicit_answers(reply):
        found = re.match(_NUMBER, re.sub(r"^[\W_]*", "", plain(part)))
        if found:
            return _value(found[0])
    if is_refusal(text):
        return None
    for words, digits in _SOME.items():
        text = re.sub(words, digits, text)
    text = _NO_COUNT.sub(" ", text)
    number = f"(?P<number>{_NUMBER})"
    said = (
        [] if asked.thing is None else [rf"(?:^|[\n,;{{])\s*{asked.thing.pattern}\W*[:=]\s*NUMBER"]
    )
    for way in (*_TOTALS[:-1], *said, _TOTALS[-1]):
        if totals := [*re.finditer(way.replace("NUMBER", number), text)]:
            return _value(totals[-1]["number"])
    if asked.thing is not None:
        between = r"(?:\s+(?!and\b|or\b)[\w-]+){0,2}\s+"
        if said_by_sentences(text, asked, question) == NO:
            return "0"
        if found := re.search(rf"(?:{number}|\ban?\b(?! few)){between}{asked.thing.pattern}", text):
            return _value(found["number"]) if found["number"] else "1"
    for way in _FIRST:
        if found := re.search(way.replace("NUMBER", number), text):
            return _value(found["number"])
    implied = [_IMPLIED[word] for word in words_of(text) if word in _IMPLIED]
    return str(implied[0]) if implied and asked.thing is None else None


def _value(said: str) -> str:
    """Digits of a number in digits or words."""
    if said[0].isdigit():
        return str(int(said.replace(",", "")))
    value = 0
    for word in re.split("[ -]", said):
        value = max(value, 1) * 100 if word == "hundred" else value + _WORDS.get(word, 0)
    return str(value)


def _letter(part: str, options: Mapping[str, str]) -> str | None:
    """The letter of an option that an explicit answer begins with, or whose text it is."""
    found = re.match(
        r"[\W_]*(?:(?:option|choice)\s+)?\(?([A-Za-z])(?![A-Za-z\d_'])(?!\s+[a-z])", part
    )
    if found and found[1].upper() in options:
        return found[1].upper()
    texts = {plain(text): letter for letter, text in options.items()}
    return texts.get(re.split(r"[.,;\n]", plain(part))[0].strip())


def _letter_of(reply: str, options: Mapping[str, str]) -> str | None:
    """The letter of an option that a reply begins or ends with, or names as one."""
    text = re.sub(r"[*_`#\"]", "", reply).strip()
    letters = "".join(options)
    if not letters:
        return None
    if re.fullmatch(r"\W*(?:[A-H]\W+(?:or\W+|and\W+)?)+[A-H]\W*", text):
        return None
    bare = re.fullmatch(rf"\W*([{letters}{letters.lower()}])\W*", text)
    if bare:
        return bare[1].upper()
    ways = (
        rf"^\(?([{letters}{letters.lower()}])(?:[.):]|\)?\s*$|\)?\s*\n)",
        rf"(?:^|[\s(])(?i:option|choice)\s+\(?([{letters}])\b",
        rf"(?:\b(?:is|it's|so|be|choose|pick|select|but)|[,:;.])\s+\(?([{letters}])\)?\W*$",
        rf"\(([{letters}])\)",
        rf"\b([{letters}])\s+is\s+(?:the\s+)?(?:correct|right|best|answer)\b",
        rf"(?:[选選]|\b(?:[Cc]learly|[Dd]efinitely)\s)\s*([{letters}])\W*$",
    )
    for way in ways:
        found = {letter.upper() for letter in re.findall(way, text)}
        if found:
            return found.pop() if len(found) == 1 else None
    return None
