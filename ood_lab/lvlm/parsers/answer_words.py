"""Words that are an answer by themselves, in eight languages, and where they count as one."""

from __future__ import annotations

import re
import unicodedata

from ood_lab.lvlm.parsers.base import NO, YES, only
from ood_lab.lvlm.parsers.chinese_japanese import CHARACTERS, said_in_characters

_YES = "yes yep yeah yea yup true correct affirmative oui sí sim ja jawohl да"
_NO = "no nope nah nay false incorrect negative non nein não nao нет"
_SAID = dict.fromkeys(_YES.split(), YES) | dict.fromkeys(_NO.split(), NO)
MARKS = {"✅": YES, "👍": YES, "✔": YES, "❌": NO, "👎": NO, "✗": NO}
_FILLERS = (
    r"(?:(?:(?:most\s+)?likely|probably|undoubtedly|definitely|certainly|clearly|i think|well|hmm+"
    r"|oh|ok|okay|ah|so|assistant|\d+[.)])\W+)*"
)
#: What follows a "no" that is an answer, where no punctuation does; before a noun it is no answer.
_AFTER_NO = re.compile(
    "there|its?|it's|this|that|the|these|those|i|i'm|we|s?he|they|you|none|not|neither|an?|is|are"
    "|isn't|but|because|since|as|sir|thanks|only|just|nothing|hay|se|veo|es|está|aparece|contiene"
    "|tiene|existe|la|el|lo|las|los|en"
)
#: What comes before a last word that is an answer, where no punctuation does.
_BEFORE_LAST = re.compile(
    "so|say|mean|meant|is|be|then|therefore|hence|thus|answer|definitely|definite|it's|that's|a"
    "|clear|with|as|but|clearly|simply|believe|think|likely|probably|respond|reply|que|leider|denke"
)
#: How a text takes back its first word: at once, or at the beginning of a clause.
_CORRECTION = re.compile(
    r"\A\s*(?:\?|\.\.\.)|[.!?,;]\s*(?:oh\W+|but\s+)?(?:wait|actually|sorry|correction|hmm"
    r"|on second thought|scratch that|upon closer|let me look|i was wrong|hold on)\b"
)
_NOT_SAID = re.compile(
    r"\b(?:not|\w+n't|cannot|says)\W+(?:\w+\W+)?$|\bthere(?:'s| is| are)\W+$"
    r"|\b(?:could|might|may)\s+be\s+(?:an?\s+)?$"
)
_WORD = re.compile(rf"(?<![\w'])(?:{'|'.join(sorted(_SAID, key=len, reverse=True))})(?![\w'])")
_STRETCHED = re.compile(r"(?<!\w)(?:y+e+(s+)|n+(o+))(?!\w)")
#: Both words as a pair, which says neither.
_PAIR = re.compile(
    r"\b(?:either\s+|neither\s+)?(?:an?\s+)?(?:yes\b\W+(?:or|nor)\W+(?:(?:an?|maybe|perhaps"
    r"|possibly)\s+)?no"
    r"|no\b\W+(?:or|nor)\W+(?:(?:an?|maybe|perhaps|possibly)\s+)?yes|yes\s*/\s*no|no\s*/\s*yes"
    r"|yes\s+and\s+no(?=\W*$|\s*[,.:;!])|oui\s+ou\s+non|s[ií]\s+o\s+no|ja\s+oder\s+nein"
    r"|sim\s+ou\s+não)\b"
)


def plain(text: str) -> str:
    """A text in lower case without markup, pairs such as "yes or no", and odd characters."""
    text = unicodedata.normalize("NFKC", text).replace("’", "'").lower()
    text = re.sub(r"<\|.*?\|>|</?\w+>|[\u200b\ufeff\ufe0f]", " ", text)
    for mark, reply in MARKS.items():
        text = text.replace(mark, f" {reply} ")
    text = re.sub(r"[*`#~\"“”„«»_]|(?<!\w)'|'(?!\w)", " ", text)
    text = re.sub(r"\b(is|are|does|do|was|were|did|has|have|ca|could)nt\b", r"\1n't", text)
    text = _STRETCHED.sub(lambda m: YES if m[1] else NO, text)
    text = re.sub(r"\b(yes|no)(?:\s+\1\b)+", r"\1", text)
    return _PAIR.sub(" ", text).strip()


def said_at_start(text: str) -> str | None:
    """What a plain text begins with saying: a word, true or false; of one letter, y or n."""
    text = re.sub(rf"^\W*{_FILLERS}", "", text)
    if text[:1] in ("y", "n") and not re.search(r"\w", text[1:]):
        return YES if text[0] == "y" else NO
    if re.match(r"not\s+(?:an?\s+)?yes\b", text):
        return NO
    if CHARACTERS.match(text):
        return said_in_characters(re.split(r"[。.!！\n]", text)[0])
    if text in ("1", "0") or re.match(r"[10]\W+$", text):
        return YES if text[0] == "1" else NO
    if re.match(r"si\W*(?:[,.!]|$)", text):  # without its accent and before a word, it is "if"
        return YES
    results = _WORD.match(text)
    return _SAID[results[0]] if results and _is_answer(results[0], text[results.end() :]) else None


def said_by_a_word(text: str) -> str | None:
    """What the first or the last word of a plain text says, where it is an answer.

    Of two that differ the first counts, unless the text corrects itself between them.
    """
    first = said_at_start(text)
    last, places = None, []
    for results in _WORD.finditer(text):
        before, after = text[: results.start()], text[results.end() :]
        opened = not before.strip() or before.rstrip()[-1] in ",.;:!?—–-()…=/%"
        word = _SAID[results[0]]
        if _NOT_SAID.search(before):
            continue
        if not re.search(r"\w", after):
            led = before.split()[-1:]
            last = word if opened or _BEFORE_LAST.fullmatch(led[0]) else None
            end = results.start()
        elif (
            (opened or before.endswith("say "))
            and after.lstrip()[:1] in (*",.;:!—–)",)
            and not _numbered(after)
        ):
            places.append(word)
    if first and last and first != last:
        between = text[:end].split(first, 1)[-1]
        if _CORRECTION.search(between):
            return last
        return first if re.search(r"\w", between) else None
    return first or last or only(set(places))


def _is_answer(word: str, after: str) -> bool:
    """Whether a first word is an answer, by what follows it: a determiner "no" is none."""
    if _numbered(after) or re.match(r"-\w", after):
        return False
    following = re.match(r"\s+([\w']+)", after)
    if following is None:
        return True
    if word in ("no", "non"):
        return _AFTER_NO.fullmatch(following[1]) is not None
    return word not in ("true", "correct", "false", "incorrect", "negative", "affirmative")


def _numbered(after: str) -> bool:
    """Whether it is the "no." of a number, as in no. 5."""
    return re.match(r"\.?\s*\d", after) is not None
