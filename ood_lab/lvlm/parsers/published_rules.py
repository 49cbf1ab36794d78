"""Rules of benchmarks and of other packages, to the letter.

What each of them says of 300 replies has been found by running the source itself
(``tests/lvlm/parsers/parser_replies.jsonl``).
"""

from __future__ import annotations

import re

from ood_lab.lvlm.parsers.base import NO, YES, only, parser

#: VLMEvalKit's marks. One that a space stands beside anywhere is dropped, else it parts words; with
#: a comma between digits, all of them are dropped.
_MARKS = ';/[]"{}()=+\\_-><@`,?!'
_BETWEEN_DIGITS = re.compile(r"\d,\d")
_FULL_STOP = re.compile(r"(?<!\d)\.(?!\d)")
#: Its release removes so many full stops at most.
_MOST_STOPS = 32
#: MMBench's options, what parts words there, and what it takes for a refusal.
_OPTIONS = {"A": YES, "B": NO}
_PARTS = str.maketrans(dict.fromkeys(".()[],:;!*#{}", " "))
_NO_ANSWER = (
    "Failed to obtain answer via API",
    "Sorry, I can't help with images of people yet.",
    "I can't process this file.",
    "I'm sorry, but without the image provided",
    "Cannot determine the answer",
)
_ANSWER_IS = re.compile(r"answer\s+is\s+\**([abcd])", re.IGNORECASE)


@parser(
    "POPE (arXiv 2305.10355), evaluate.py of AoiDragon/POPE 08d957b",
    "no: `No`, `not` or `no` is a word of the first sentence",
    "yes",
)
def pope(reply: str) -> str | None:
    """No, if its first sentence has No, not or no; else yes."""
    words = reply.split(".")[0].replace(",", "").split(" ")
    return NO if {"No", "not", "no"} & set(words) else YES


@parser(
    "AMBER (arXiv 2311.07397), inference.py of junyangwang0410/AMBER 534babf",
    "exactly `Yes` or `No`",
)
def amber(reply: str) -> str | None:
    """Exactly ``Yes`` or ``No``."""
    return {"Yes": YES, "No": NO}.get(reply)


@parser(
    "lmms-eval 75571cf and 0.7.3, task pope: pope_process_results",
    "only yes or no, whatever the case and the space around it",
    "unparsed; recall leaves it out",
    recall_of="answered",
)
def lmms_pope(reply: str) -> str | None:
    """Only yes or no. A full stop is too much: "Yes." is none."""
    text = reply.lower().strip()
    return text if text in (YES, NO) else None


@parser(
    "lmms-eval 75571cf and 0.7.3, task mme: parse_pred_ans",
    "yes, else no, within the first four characters, in words too, full stops aside; or only "
    "`y` or `n`",
)
def lmms_mme(reply: str) -> str | None:
    """What the first four characters contain: "know" and "None" are no, "**Yes" is none."""
    text = reply.lower().strip().replace(".", "")
    if len(text) == 1:
        return {"y": YES, "n": NO}.get(text)
    return next((word for word in (YES, NO) if word in text[:4]), None)


@parser(
    "ODE (arXiv 2409.09318), inference.py of Iridescent-y/ODE 161de51",
    "the text before the first comma, line end and full stop; else no, if `No`, `not` or `no` "
    "is anywhere, in words too",
)
def ode(reply: str) -> str | None:
    """The text before the first comma, line end and full stop.

    Else no, if No, not or no is anywhere in the reply, inside of words too ("know").
    """
    head = reply.split(",")[0].split("\n")[0].split(".")[0]
    if head in ("Yes", "yes", "No", "no"):
        return head.lower()
    return NO if any(part in reply for part in ("No", "not", "no")) else None


@parser(
    "VLMEvalKit e8e78f0: YOrN_Extraction",
    "the only one of both among the words",
    "unparsed; there, a judge reads it",
)
def vlmeval(reply: str) -> str | None:
    """The one of yes and no that is among the words; both or neither is none.

    Its punctuation has no ``*``: ``**Yes**`` is neither.
    """
    text = reply.lower()
    dropped = _BETWEEN_DIGITS.search(text) is not None
    marks: dict[str, str | int | None] = {
        mark: "" if dropped or f"{mark} " in text or f" {mark}" in text else " " for mark in _MARKS
    }
    words = _FULL_STOP.sub("", text.translate(str.maketrans(marks)), count=_MOST_STOPS).split()
    return only({YES, NO}.intersection(words))


@parser(
    "MMBench (arXiv 2307.06281), can_infer of VLMEvalKit e8e78f0",
    "option A (yes) or B (no), else the word in a short reply",
    "unparsed; there, a judge reads it",
)
def mmbench(reply: str) -> str | None:
    """The first of MMBench's two steps.

    The options are A = yes and B = no. Capital A or B is the answer where only one of them is a
    word, and among the last four; else what follows "answer is"; else the one of yes and no that
    the reply contains, within words too, if it has ten characters at most. So "A no" and "A dog is
    there" are A, and "Yes, there is a dog." is left to the judge: it is none here.
    """
    if any(text in reply for text in _NO_ANSWER):
        return None
    words = reply.translate(_PARTS).split()
    named = [letter for letter in _OPTIONS if letter in words]
    if len(named) == 1 and words.index(named[0]) >= len(words) - 4:
        return _OPTIONS[named[0]]
    if not named and "Z" in words:
        return None
    match = _ANSWER_IS.search(reply)
    if match is not None and match[1].upper() in _OPTIONS:
        return _OPTIONS[match[1].upper()]
    text = reply.lower()
    # Twice as long as both options together.
    contained = [option for option in _OPTIONS.values() if option in text]
    return only(contained) if len(text) <= 2 * len(YES + NO) else None
