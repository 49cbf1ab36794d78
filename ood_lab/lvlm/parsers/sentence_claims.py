"""What the sentences of a reply claim of the very thing in the question."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ood_lab.lvlm.parsers.asked_things import Asked
from ood_lab.lvlm.parsers.base import NO, YES, words_of

_CLAUSE = re.compile(r"[^.!?;\n。！？]+(?:[.!?;\n。！？]|$)")
_JOINED = re.compile(
    r"\s*,?\s+(?:but|however|although|though|whereas|while|yet)\s+"
    r"|,\s*(?:and\s+)?(?=(?:there|it|i|so)\b)|\s+and\s+(?=there\s)"
)
#: Clauses that claim nothing: doubts, wishes, conditions, questions told again.
_NO_CLAIM = re.compile(
    r"\b(?:whether|if|(?<!no )(?<!without )(?<!without a )doubt\w*|hardly|barely|scarcely|unlikely"
    r"|chance"
    r"|possibility|exclud\w*|not (?:false|wrong|incorrect|untrue)|rul\w+ (?:\w+ )?out|may|might"
    r"|maybe|perhaps|possibly|possible|usually|typically|often|evidence|(?:would|should)(?:n't)?"
    r"|could be|unclear|unsure|uncertain|asks?|asked|asking|says|reads|(?<!no )question"
    r"|look(?:s|ing)? (?:like(?! there)|for)"
    r"|(?:not|n't) (?:sure|certain|clear|know)|hard to|difficult to|way to|instead of|rather than"
    r"|resembl\w+|similar to|(?:cannot|can't|unable to|able to|hard to) (?:\w+ )?"
    r"(?:be )?(?:confirmed|determined|verified|tell|say|determine|confirm|verify|know))\b"
)
_REFUSAL = re.compile(
    r"\b(?:cannot|can't|can not|unable to|not able to|won't|will not)\s+(?:\w+\s+){0,2}?"
    r"(?:help|assist|comply|count|view|process|access|open|analy[sz]e|answer"
    r"|see\s+(?:the|this|that|your|any)\s+(?:image|picture|photo))"
    r"|please\s+(?:provide|upload|share|attach|send|try)|as an ai\b"
    r"|\bno image (?:was|is|has|provided|attached|uploaded)|without the image"
    r"|(?:don't|do not) see (?:an|any|the) (?:image|picture|photo)"
    r"|\bno (?:se puede|(?:lo )?sé|puedo (?:ver la imagen|determinar|saber|responder|ayudar))\b"
    r"|\bnão (?:sei|(?:é possível|posso) (?:determinar|saber|responder|ajudar|ver a imagem))\b"
    r"|\bje ne (?:sais|peux) pas\b|\bich (?:weiß|kann) (?:es |das |dir |leider )*nicht\b"
)
#: Of one side, "no" says nothing about the whole picture.
_PLACE = re.compile(r"\b(?:left|right|top|bottom|upper|lower|foreground|background|corner)\b")
_DETERMINER = re.compile(
    r"\b(no|zero|0|without|neither|nor|lacks?|lacking|absence of|free of|devoid of)\b"
)
_NOT = re.compile(
    r"(?:\b(?:not|never|cannot|unable to|none|fails? to|nothing(?! but| except))|n't)\b"
    r"(?!\s+(?:only|just|far|easy|clear|moving))"
)
#: What denies all that follows: no evidence of, nothing that could be; it is false that.
_NO_TRACE = re.compile(
    r"(?:\b(?:no|zero)|n't any|\bnot any) (?:\w+ )?(?:evidence|signs?|indications?|traces?|hints?"
    r"|proof|sight) (?:(?:of|for|that there (?:is|are)|that(?= an?\b| any\b))\s+(?:any\s+|an?\s+)?)"
    r"|\bno (?:evidence|indication|proof) (?:there (?:is|are) )?(?:any|an?)\s+"
    r"|\bnothing\b[^.;!?]*?\b(?:(?:could|might|may) be|looks? like|resembl\w+|is|like"
    r"|similar to)\s+(?:an?|any)\s+"
)
_IS_FALSE = r"(?:false|untrue|incorrect|wrong|mistaken|not (?:true|correct|right|the case))\b"
_FALSE_THAT = re.compile(
    rf"\b(?:it|that|this)(?:'s| is| would be|'d be"
    rf"| seems)\s+(?:\w+ly\s+)?{_IS_FALSE}\s+(?:to \w+\s+)?(?:that\s+)?"
    rf"|\bthe (?:claim|statement|assertion|idea|suggestion) that\s+(?=[^.;]*\b(?:is"
    rf"|was) {_IS_FALSE})"
)
#: What leaves open all that was said before.
_OPEN_END = re.compile(r"\bbut (?:there|it|one) (?:may|might|could)\b")
_FALSE = "\ue000"
#: A negation that governs the whole sentence behind it.
_DISBELIEF = re.compile(r"(?:\bnot|n't)\s+(?:think|believe|true|the case)\b")
#: Between a negation and a thing that it does not govern.
_BETWEEN = re.compile(
    r"\b(?:in|on|of|with|at|near|beside|by|under|over|from|the|is|are|has|that)\b"
)
_RESTART = re.compile(r"\b(?:there|which|that|because|so)\b")
_SEEN = re.compile(
    r"\b(?:there(?:'s| is| are| was| were| exists?| (?:appears?|seems?) to be)"
    r"|(?:is|are) there|contain(?:s|ing)?|show(?:s|ing|n)?|depict(?:s|ing)?|features?|"
    r"includ(?:es?|ing)|displays?|has|have|holds?|sees?"
    r"|spot|notice|find|found|observe|identify|detect|(?:image|picture|photo"
    r"|photograph)(?: is)? of|with|stands?|sits?|lies|hangs?|(?:it|that|this|here)(?:'s| is)"
    r"|(?:is|are)\s+(?:(?:indeed|clearly)\s+)?(?:an?|some|two|several))\b"
)
_COUNT = r"(?:an?|one|two|three|four|five|several|some|many|multiple|the|this|that|\d+)"
_SUBJECT = re.compile(
    rf"^\W*(?:(?:[\w']+\s*,|just|only|definitely|clearly|certainly"
    rf"|surely)\s*)?{_COUNT}\s+(?:[\w-]+\s+){{0,3}}$"
)
_THERE = (
    r"(?:visible|present|shown|there|here|in|on|seen|depicted|found|appear|exist|included|pictured)"
)
_NOT_AFTER = re.compile(
    r"^\s*(?:(?:is|are|was|were|can|does|do)?\s*(?:not|n't|never|cannot)|isn't|aren't|can't"
    r"|doesn't)"
    rf"\s+(?:be\s+|\w+ly\s+)?{_THERE}\b|^\s*(?:is|are)\s+(?:absent|missing|nowhere)"
    r"|^\s*[:=-]\s*(?:not|no|absent)\b"
)
_THERE_AFTER = re.compile(rf"^\s*(?:(?:is|are|can be)\s+(?:\w+ly\s+)?|[:=-]\s*){_THERE}\b")
#: After a name: what does not make it a part of another name, as in "bottle opener".
_FOLLOWS = re.compile(
    r"\s*(?:$|[^\w\s]|(?:in|on|at|is|are|was|were|and|or|nor|but|with|without|to|of|near|next"
    r"|beside|by"
    r"|behind|under|over|above|below|from|that|which|who|can|cannot|does|do|has|have|visible"
    r"|present"
    r"|here|there|somewhere|anywhere|either|too|also|as|not|isn't|aren't|can't|doesn't|stands?"
    r"|sits?"
    r"|lies|appears?|instead|alone|inside|outside|among|between|against|along|around|for|i|\w+ing"
    r"|\w+ed|\w+ly|than|whatsoever)\b)"
)
_IT = r"(?:it|there|this|one|s?he|they|the image|the picture|i) (?:is|are|does|do|has|see)"
_IN_IMAGE = r"(?: in (?:the|this|that) (?:image|picture|photo|photograph|scene)| here| anywhere)?"
#: It denies a thing by a word for it; "I don't see" may as well decline.
_NONE_SEEN = (
    r"(?:i (?:don't|do not|can't|cannot) (?:see|find|spot)|there (?:isn't|is not|aren't|are not)) "
    rf"(?:one|any){_IN_IMAGE}"
    rf"|(?:there (?:is|are) )?none(?: (?:is|are|can be))?(?: {_THERE}| detected)?{_IN_IMAGE}"
)
_APOLOGY = re.compile(
    r"(?:(?:(?:i'm|i am) (?:(?:very|so) )?)?sorry|unfortunately|(?:i'm|i am) afraid|i apologi[sz]e)"
    r"(?:\s*,)?(?: but| that)?\s+"
)
#: Replies that leave the thing out.
_SHORT = {
    YES: re.compile(
        rf"(?:indeed\s+)?{_IT}(?: one| indeed| present| visible| there)?|present|yes indeed"
        r"|(?:there is|i see|i can see) one (?:in|on|at|under|behind|next to|near|beside|by) .*"
        r"|(?:it (?:seems|appears|looks)|i (?:think|believe|guess)) so"
        r"|(?:certainly|absolutely|definitely|indeed|of course|sure)(?: yes)?"
    ),
    NO: re.compile(
        rf"{_IT}(?:n't| not| none)(?: see)?(?: one| any| present| visible| there)?"
        r"|(?:(?:most )?(?:probably|likely)|i (?:would )?(?:think|believe|guess|suppose|say)) not"
        r"|not (?:as far as|that|from what) i .*"
        r"|i (?:don't|do not) (?:think|believe) (?:so|there is)|none(?: of (?:them|these|those))?"
        r"|absent"
        rf"|none that i (?:can )?see|{_NONE_SEEN}"
        r"|(?:(?:absolutely|definitely|certainly|of course) )?not(?: at all)?"
        rf"|(?:i (?:can )?see|there (?:is|are)|it has) none|{_IT}(?:n't| not) \w+ (?:one|any)"
        r"|(?:(?:that|this)(?:'s| is) )?not (?:true|correct|found|detected)"
        r"|not (?:present|visible|really|in this|in the|that i|there|here).*|nothing (?:like|of).*"
    ),
}
#: Of a question, what a sentence need not repeat.
_NEEDLESS = re.compile(
    "is|are|was|were|does|do|did|the|an?|this|that|in|on|of|image|picture|photo|there|yes|no|or"
    "|please|answer"
)
#: Numbers below ten, in words.
UNITS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_NUMBERS = ("no", *UNITS, "ten")
_COUNTED = rf"\b(\d+|{'|'.join(_NUMBERS)})\s+(?:[a-z]+\s+)?"


def is_refusal(text: str) -> bool:
    """Whether a plain text declines to answer."""
    return _REFUSAL.search(text) is not None


def said_by_sentences(text: str, asked: Asked, question: str) -> str | None:
    """What the sentences of a plain text say to the question; None where they say nothing.

    A thing that is there on any account is there; claims that contradict each other say nothing.
    """
    if _OPEN_END.search(text):
        return None
    reply = set()
    text = _FALSE_THAT.sub(_FALSE, _NO_TRACE.sub(" no ", text))
    for clause in _clauses(text, asked.more is None):
        if asked.thing is not None:
            results = _claims(clause, asked.thing)
        elif asked.more is not None:
            results = _comparison(clause, asked.more)
        else:
            results = _echo(clause, question)
        if results and _FALSE in clause:
            results = NO if results == YES else None
        reply |= {results} if results else set()
    if len(reply) != 1:
        return None if reply or asked.negated else _short(text)
    (only,) = reply
    return {YES: NO, NO: YES}[only] if asked.negated and asked.thing is not None else only


def _clauses(text: str, parted: bool) -> Iterator[str]:
    """What claims something; sentences are ``parted`` where they could be two."""
    for results in _CLAUSE.finditer(text):
        if not results[0].rstrip().endswith("?"):
            for clause in _JOINED.split(results[0]) if parted else [results[0]]:
                if not _NO_CLAIM.search(clause):
                    yield clause.strip(" .!;:\n")


def _claims(clause: str, thing: re.Pattern[str]) -> str | None:
    """Yes: it is there; no: it is not."""
    for results in thing.finditer(clause):
        before, after = clause[: results.start()], clause[results.end() :]
        if not _FOLLOWS.match(after):
            continue
        if _NOT_AFTER.match(after) or _denied(before):
            return None if _PLACE.search(clause) else NO
        seen = _SEEN.search(before) or _SUBJECT.match(before) or not before.strip()
        if seen or _THERE_AFTER.match(after):
            return YES
    return None


def _denied(before: str) -> bool:
    """Whether a negation in front of a thing governs it."""
    if _DISBELIEF.search(before):
        return True
    results = [*_DETERMINER.finditer(before)]
    if results:
        between = before[results[-1].end() :]
        article = results[-1][1] in ("no", "zero", "0") and re.search(r"\ban?\b", between)
        if not _BETWEEN.search(between) and not article:
            return True
    verbs = [*_NOT.finditer(before)]
    return bool(verbs) and not _RESTART.search(before[verbs[-1].end() :])


def _comparison(clause: str, things: tuple[str, str]) -> str | None:
    """Whether there are more of the first thing than of the second."""
    a, b = things
    not_ = r"(?P<not>not\s+|n't\s+|no\s+)?"
    for first, second, more in ((a, b, True), (b, a, False)):
        for word, up in (("more|greater|larger|higher", True), ("fewer|less|smaller|lower", False)):
            ways = rf"{not_}(?:{word})\s+(?:\w+\s+)?{first}.*?\bthan\b.*?{second}"
            ways += rf"|{first}.*?{not_.replace('not>', 'nay>')}(?:{word}).*?\bthan\b.*?{second}"
            if results := re.search(ways, clause):
                denied = bool(results["not"] or results["nay"])
                if denied and more != up:
                    return None  # no fewer: as many, or more
                return YES if more == up and not denied else NO
        if re.search(rf"{first}.*?\boutnumbers?\b.*?{second}", clause):
            return YES if more else NO
    bare = rf"number of (?:the )?{a}[^.]*?\bis\s+(not\s+)?(?:greater|larger|higher)\b(?!.*\bthan\b)"
    if results := re.search(bare, clause):
        return NO if results[1] else YES
    counts = [re.search(_COUNTED + thing, clause) for thing in (a, b)]
    words = [results[1] for results in counts if results]
    reply = [int(word) if word.isdigit() else _NUMBERS.index(word) for word in words]
    if len(reply) == 2:
        return YES if reply[0] > reply[1] else NO
    same = r"\b(?:equal|same number|as many|equally many)\b"
    return NO if re.search(same, clause) else None


def _echo(clause: str, question: str) -> str | None:
    """Whether a clause repeats or denies what the question asks, word by word."""
    question_words = words_of(re.split(r"[?(\n]", question)[0].removeprefix("Question:"))
    wanted = [word for word in question_words if not _NEEDLESS.fullmatch(word)]
    words = words_of(clause)
    if len(wanted) < 2 or not all(any(w.startswith(want[:5]) for w in words) for want in wanted):
        return None
    denied = any(w in ("not", "no", "never") or w.endswith("n't") for w in words)
    if any(w in ("not", "no") for w in question_words):
        return None
    return NO if denied else YES


def _short(text: str) -> str | None:
    """A reply that leaves the thing out: "It does.", "None."; an apology has to deny it."""
    text = text.strip()
    if apology := _APOLOGY.match(text):
        first = re.split(r"[.!,;\n]", text[apology.end() :], maxsplit=1)[0].strip()
        return NO if re.fullmatch(rf"{_NONE_SEEN}|not", first) else None
    first = re.split(r"[.!,;\n]", text, maxsplit=1)[0].strip()
    return next((reply for reply, way in _SHORT.items() if way.fullmatch(first)), None)
