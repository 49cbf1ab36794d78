"""Multiple choice: the letter of the option that a reply chooses."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from functools import partial

from ood_lab.lvlm.parsers.answer_words import MARKS, plain
from ood_lab.lvlm.parsers.asked_things import asked_by
from ood_lab.lvlm.parsers.base import NO, YES, is_foreign, only, parser_with_question, whole_word
from ood_lab.lvlm.parsers.explicit_answers import explicit_answers, settled
from ood_lab.lvlm.parsers.sentence_claims import is_refusal

#: In a text, the letter of an option and the words of an option become one character each.
_LETTERS, _TEXTS = 0xE000, 0xE100
_LETTER, _TEXT, _MENTION = r"[\ue000-\ue0ff]", r"[\ue100-\ue1ff]", r"[\ue000-\ue1ff]"
_GAP = r"[^\w\ue000-\ue1ff]*"
_THE = r"(?:(?:an?|the|be|it's|it is|option|choice|letter)\s+){0,4}"
#: A capital by itself that is a letter, not an article or a pronoun.
_NO_ARTICLE = (
    r"(?=\s*(?:$|[^\w\s'])|[ \t]*\n|\s+(?:is|because|since|as|seems|matches|fits|must|would|should"
    r"|or|and|but|yes|no|right|wrong|correct|incorrect|true|false)\b|[^\x00-\x7f])"
)
_LIST = (
    rf"{_THE}{_MENTION}(?:(?:\s*,\s*{_THE}{_MENTION})*\s*,?\s*(?:and|or|nor)\s+{_THE}{_MENTION})?"
)
_REJECTED = re.compile(
    r"(?:\b(?:not|never|neither|nor|unlike|without|except|no|(?:rather|other|less \w+|more \w+"
    r"|\w+er) than"
    r"|instead of|(?:eliminate|exclude|reject|discard|dismiss|rule out|ruling out|ruled out"
    r"|cross out)d?)"
    rf"|n't|不是|不选|不選|排除|而非)\s*{_LIST}"
    rf"|{_MENTION}\s*(?:(?:option|choice|answer)\s*)?(?:\s(?:is|are|was|does|do|can"
    rf"|could)\s*(?:not\b|n't)|\s(?:cannot|can't)\b)",
    re.IGNORECASE,
)
_RIGHT = (
    "correct|right|yes|true|best|better|valid|accurate|most likely|more likely|answer|remains|left"
    "|this one|对|正确|正解"
)
_WRONG = (
    "incorrect|wrong|no|false|rejected|discarded|dismissed|excluded|eliminated|out|ruled out"
    "|impossible|invalid|inaccurate|less likely|错|错误|都?不对"
)
_VERDICT = re.compile(
    rf"((?:(?:{_MENTION}\s*[,、]\s*)*{_MENTION}\s*,?\s*(?:[&、和]|and"
    rf"|or)\s*)?{_MENTION})\s*\)?\s*(?:(?:option|choice|answer|one)\s*)?"
    rf"(?:\b(?:is|are|was|seems?|looks?|(?:can|must|should|may|would|could) be)\s+(?:(?:the|a|also"
    rf"|the only|\w+ly)\s+)*(?:({_RIGHT})|({_WRONG}))\b"
    rf"|[\s:=,()|—–-]*(?:({_RIGHT})|({_WRONG}))\s*\)?\s*(?=[,.;|\n]|$|{_MENTION}))",
    re.IGNORECASE,
)
#: What makes a letter the subject of a sentence, not a choice.
_DESCRIBED = (
    r"\s+(?:is|are|was|shows?|describes?|refers?|means?|says?|represents?|depicts?|would|could"
    r"|might)\b"
)
#: Several options of which one counts, or none: "A or B", "between a dog and a cat".
_OR = r"(?:\s*(?:[,/&+;|、]|和|或|か|\b(?:or|and|maybe|possibly|perhaps)\b))+\s*"
_SEVERAL = [
    re.compile(
        rf"(?:\b(?:between|either|both)\s+)?{_THE}{item}(?:{_OR}{_THE}{item})+", re.IGNORECASE
    )
    for item in (_LETTER, _TEXT)
]
#: Nothing but letters.
_LETTERS_ONLY = re.compile(rf"{_GAP}(?:{_LETTER}{_GAP}){{2,}}")
#: Where a reply ends with its letter, or names it as its choice.
_CONCLUSIONS = (
    rf"(?:\b(?:is|it's|shows|so|be|but|choose|pick|select|say|guess|with|probably|likely|clearly"
    rf"|definitely)|[选選，。]|[,:;.])\s*(?:option|choice|letter)?\s*({_LETTER}){_GAP}$",
    rf"\b(?:choose|pick|select|go(?:ing)? with|i'd say|would say)\s+(?:option|choice"
    rf"|letter)?\s*({_LETTER})",
)


@parser_with_question("the letter of an option")
def choice(reply: str, question: str) -> str | None:
    """The letter of an option that the reply chooses.

    An explicit answer; the only option that is called right, by its letter or its text; the letter
    that the reply begins with, whatever options its reasons name; the letter that it ends with; the
    only letter, else the only text, that is not rejected. Two letters say nothing.
    """
    return chosen_letter(reply, asked_by(question).options)


@parser_with_question("the text of an option")
def option(reply: str, question: str) -> str | None:
    """The letter of the only option whose text an explicit answer, or the whole reply, has."""
    return chosen_letter(reply, asked_by(question).options, letters=False)


def chosen_letter(reply: str, options: Mapping[str, str], letters: bool = True) -> str | None:
    """The letter of an option that a whole reply chooses; see :func:`choice`.

    Args:
        reply: as it came, without its thoughts.
        options: text by letter.
        letters: whether a letter chooses, too.
    """
    if not options or is_foreign(reply):
        return None
    for part in explicit_answers(reply):
        if letter := chosen_option(part, options, letters, explicit=True):
            return letter
    if is_refusal(plain(reply)):
        return None
    return settled(_clean(reply), partial(chosen_option, options=options, letters=letters))


def chosen_option(
    text: str,
    options: Mapping[str, str],
    letters: bool = True,
    texts: bool = True,
    explicit: bool = False,
) -> str | None:
    """The letter of the option that a text chooses; None where it chooses none, or several.

    Args:
        text: of the reply.
        options: text by letter.
        letters: whether a letter chooses.
        texts: whether the words of an option choose.
        explicit: the text is an answer from its first word on.
    """
    text = _marked(_clean(text), options, letters)
    if not texts:
        text = re.sub(_TEXT, " ", text)
    verdicts = [*_VERDICT.finditer(text)]
    right = _of("".join(results[1] for results in verdicts if results[2] or results[4]))
    if right:
        return only(right)
    text = _REJECTED.sub(" but ", _VERDICT.sub(" ", text))
    first = rf"^{_GAP}{_THE}({_MENTION if explicit else _LETTER})(?!{_MENTION}|{_DESCRIBED})"
    several = [item.search(text) for item in _SEVERAL]
    if _LETTERS_ONLY.fullmatch(text) and len(_of(text)) > 1:
        return None
    for way in (first, *_CONCLUSIONS):
        results = re.search(way, text, re.IGNORECASE)
        if results and not any(m and m.start() <= results.start(1) < m.end() for m in several):
            return _letter(results[1])
    for item in _SEVERAL:
        text = item.sub(" ", text)
    for kind in (_LETTER, _TEXT):
        if mentions := _of("".join(re.findall(kind, text))):
            return only(mentions)
    return None


def _clean(reply: str) -> str:
    """A text without markup, whose marks are words; letters keep their case."""
    text = unicodedata.normalize("NFKC", reply).replace("’", "'")
    for mark, word in (MARKS | {"✓": YES, "✘": NO, "×": NO}).items():
        text = text.replace(mark, f": {word} ")
    return re.sub(r"[*`#\"“”„«»\ufe0f\ue000-\ue1ff]|\b_|_\b", "", text).strip()


def _marked(text: str, options: Mapping[str, str], letters: bool) -> str:
    """A text with one character for each letter and each text of an option."""
    places = {letter: place for place, letter in enumerate(options)}
    by_text = {plain(words).strip(" .!"): letter for letter, words in options.items()}
    words = "|".join(map(whole_word, sorted(filter(None, by_text), key=len, reverse=True)))

    def of_letter(results: re.Match[str]) -> str:
        return chr(_LETTERS + places[next(filter(None, results.groups())).upper()])

    def of_text(results: re.Match[str]) -> str:
        return chr(_TEXTS + places[by_text[" ".join(results[0].lower().split())]])

    if letters:
        capitals = "".join(options)
        letters_of_any_case = capitals + capitals.lower()
        sure = "".join(letter for letter in options if letter not in "AI") or "\ue200"
        unsure = "".join(letter for letter in options if letter in "AI") or "\ue200"
        ways = (
            rf"[(\[]([{letters_of_any_case}])[)\]][.:]?|(?<![\w'])([{capitals}])[.):](?=\s|$)|(?:^"
            rf"|(?<=\n))\W*([{letters_of_any_case}])(?:[.):]|(?=\W*$))"
            rf"|(?i:(?<=option )|(?<=choice )|(?<=letter ))([{letters_of_any_case}])(?![\w'])"
            rf"|(?<![A-Za-z0-9'])([{sure}])(?![A-Za-z0-9'])"
            rf"|(?<![A-Za-z0-9'/])([{unsure}]){_NO_ARTICLE}"
            rf"|(?<=is )([{letters_of_any_case}])(?=\W*$)"
        )
        text = re.sub(ways, of_letter, text)
    text = re.sub(words, of_text, text, flags=re.IGNORECASE) if words else text
    return re.sub(
        rf"({_LETTER}){_GAP}(?:(?:an?|the|it's|it is)\s+)*({_TEXT})",
        _merged,
        text,
        flags=re.IGNORECASE,
    )


def _merged(results: re.Match[str]) -> str:
    """A letter before its own text stands for both."""
    return results[1] if _letter(results[1]) == _letter(results[2]) else results[0]


def _letter(mark: str) -> str:
    return chr(ord("A") + ord(mark) % 0x100)


def _of(text: str) -> set[str]:
    """The letters of all options that a text mentions."""
    return set(map(_letter, re.findall(_MENTION, text)))
