"""Replies in everyday styles to questions, with what a person reads in them.

``python -m tests.benchmarks.reply_styles`` writes ``tests/lvlm/parsers/styled_replies.jsonl``,
which the tests and the page about parsers read. Replies come from templates by object,
right answer and style, and some are written by hand. A negated question ("not contain") turns
what a sentence about the object says, not what a word says.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ood_lab.lvlm.parsers import PARSERS
from ood_lab.lvlm.parsers.reply_text import read

FILE = Path(__file__).parents[1] / "lvlm" / "parsers" / "styled_replies.jsonl"


def styled_replies() -> list[dict[str, Any]]:
    """``kind`` (of the question), ``style, question, reply, says``."""
    return [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]


def own_parser(kind: str) -> str:
    """Our parser of questions of that kind."""
    return {"number": "number", "choice": "choice"}.get(kind, "default")


def reads_right(name: str, row: Mapping[str, Any]) -> bool:
    """Whether a parser reads in a reply what a person reads."""
    said = read(row["reply"], PARSERS[name], cut=False, question=row["question"])
    return bool(said == row["says"])


#: Object with its article, plural, and another object that the picture shows.
OBJECTS = (
    ("a kettle", "kettles", "a lamp"),
    ("an umbrella", "umbrellas", "a parked van"),
    ("a traffic light", "traffic lights", "a bench"),
)
QUESTIONS = (
    "Is there {a} in the image?",
    "Does this image contain {a}? (yes or no)",
    "Can you see {a} in the picture? Answer with one word.",
)
NEGATED = "Does this image not contain {a}? (yes or no)"

#: By style: a reply that says yes and one that says no, by a word.
WORDS = {
    "bare word": [("Yes", "No"), ("yes.", "no."), ("YES!", "NO!"), ("y", "n"), ("True", "False")],
    "markup": [("**Yes**", "**No**."), ("`yes`", "`no`"), ('"Yes"', '"No."'), ("- Yes", "- No")],
    "word and sentence": [
        ("Yes, next to {other}. I see no label.", "No, I only see {other}."),
        ("Yeah, on the left side, not far from {other}.", "Nope. Just {other}, no doubt."),
        ("Yes - and no person is near it.", "No - {other}, yes, but nothing else."),
    ],
    "lead-in": [
        ("Based on the image, yes, it is there.", "Based on the image, no, it is not there."),
        ("Well, yes.", "Hmm, no."),
    ],
    "last word": [
        ("I looked at the whole scene, so yes.", "I looked at the whole scene, so no."),
        ("Behind {other} something is visible: yes", "Only {other} is visible: no"),
        ("At first I thought no, but now it is clear: yes.", "At first yes, but no."),
    ],
    "answer is": [
        ("The answer is yes. There is no vase.", "The answer is no. There is {other}."),
        ("The correct answer would be yes.", "I think the answer would be no."),
        ("The answer to your question is: yes", "The answer to your question is: no"),
    ],
    "answer label": [
        ("Answer: Yes", "Answer: No"),
        ("**Answer:** Yes, on the floor.", "**Answer:** No, only {other}."),
        ("### Answer\nYes", "### Answer\nNo"),
        ("A: yes", "A: no"),
    ],
    "final answer": [
        (
            "Let me think. The left side has no {one}. Final answer: yes",
            "Step 1: I see {other}. Step 2: yes, a shadow. Final answer: No.",
        ),
        ("Reasoning: maybe not... Final answer: **Yes**", "It seems yes. Final Answer: no"),
    ],
    "boxed, JSON, tags": [
        (r"\boxed{yes}", r"So we get \boxed{\text{No}}"),
        ('{"answer": "yes"}', '```json\n{"answer": "no", "reason": "yes men"}\n```'),
        ("<answer>Yes</answer>", "I see {other}. <answer>no</answer>"),
        ('{"answer": true}', '{"answer": false}'),
    ],
    "reasoning": [
        ("<think>No {one}... wait, there it is.</think>Yes", "<think>Yes? No.</think>\n\nNo."),
    ],
    "other languages": [
        ("是的，图中有。", "没有，图中没有。"),
        ("Oui, il y en a.", "Non, il n'y en a pas."),
        ("Sí, en la mesa.", "No, no hay."),
        ("Ja, auf dem Tisch.", "Nein, das ist etwas anderes."),
        ("Sim, à esquerda.", "Não, não há."),
        ("はい、あります。", "いいえ、ありません。"),
    ],
}
#: By style: a sentence that says that the object is there, and one that it is not.
SENTENCES = {
    "there is": [
        ("There is {a} beside {other}.", "There is no {one} beside {other}."),
        ("There are two {many} here.", "There are no {many} here."),
        ("There's {other}, and there is {a}.", "There isn't {a}, but there is {other}."),
    ],
    "shows, contains": [
        ("The photo contains {a}.", "The photo does not contain any {one}."),
        ("The image shows {other} and {a}.", "The image shows {other}. It doesn't show {a}."),
    ],
    "I see": [
        ("I can see {a} next to {other}.", "I cannot see {a} anywhere."),
        ("I see {other} with {a} on it.", "I don't see any {many}, only {other}."),
        ("I see {a}.", "I see {other} but no {one}."),
    ],
    "object first": [
        ("{A} is visible behind {other}.", "{A} is not visible."),
        ("{A} stands in the corner.", "No {one} is visible in this picture."),
    ],
}
#: Replies that say nothing.
NOTHING = (
    "I'm not able to help with that request, no matter how it is phrased.",
    "I am not sure whether it is a yes or a no.",
    "Yes and no: it depends.",
    "There is {other} on the shelf.",
    "I cannot tell whether there is {a}.",
    "There may be {a}, but it is hard to tell.",
    "No doubt a hard question.",
    "No idea.",
    "Please upload the image.",
    "The question asks if there is {a}.",
    "不确定。",
    "",
)
#: Objects that are counted.
COUNTED = (("tents", "tent"), ("buses", "bus"), ("people", "person"))
#: Reply and the number that it says.
NUMBERS = {
    "number": [("4", "4"), ("Four.", "4"), ("**7**", "7"), ("twelve {many}", "12"), ("None.", "0")],
    "total": [
        ("There is 1 {one} on the left and 3 on the right, so 4 in total.", "4"),
        ("Step 1: left. Step 2: right. The total is three.", "3"),
        ("2 {many} in front and 3 behind, a total of 5.", "5"),
        ("2 + 3 = 5 {many}", "5"),
    ],
    "final number": [
        ("On the left 2, on the right 4. Final answer: 6", "6"),
        ("I first saw 2, but the answer is 3.", "3"),
        (r"\boxed{8}", "8"),
        ('{"answer": 9}', "9"),
    ],
    "number of the object": [
        ("I count 2 dogs and 3 {many}.", "3"),
        ("In one image like this, I see four.", "4"),
        ("There are six large {many}: two red and four blue.", "6"),
        ("There are no {many} in the picture.", "0"),
        ("There is a {one} next to 2 trees.", "1"),
        ("1. I looked at the picture.\n2. There are 5 {many}.", "5"),
    ],
    "says nothing": [("Many.", None), ("I cannot help with a picture like that.", None)],
}
CHOICE = "Which colour is it? A. red B. blue C. green D. none"
CHOICES = (
    ("C", "C"), ("c.", "C"), ("(C)", "C"), ("C. green", "C"), ("green", "C"), ("Option B", "B"),
    ("The correct option is (C) green, not B.", "C"), ("The answer is A", "A"),
    ("A blue one would be B; it is green, so C.", "C"), ("Answer: D", "D"),
    ("A or B", None), ("I cannot see the image.", None), (r"\boxed{A}", "A"), ("**B**", "B"),
)  # fmt: skip
#: Written by hand: question, reply, what it says.
BY_HAND = (
    ("Is the lid closed?", "The lid is closed.", "yes"),
    ("Is the lid closed?", "The lid is not closed.", "no"),
    ("Is the lid closed?", "The lid is red.", None),
    ("Is there a dog in the image?", "There is a hose, no cat.", None),
    ("Is there a dog in the image?", "There are dogs.", "yes"),
    ("Is there a bottle in the image?", "There is a bottle opener.", None),
    ("Is there a bottle in the image?", "It looks like a vase, so the answer would be no.", "no"),
    ("Is there a mouse in the image?", "Three mice are on the table.", "yes"),
    ("Is there a knife in the image?", "There are no knives.", "no"),
    ("Is there a person in the image?", "There are no people in it.", "no"),
    ("Is there a bench in the image?", "There is a sign that says no parking.", None),
    ("Is there a bench in the image?", "No parking sign, but there is a bench.", "yes"),
    ("Is there a bench in the image?", "Yes, no doubt.", "yes"),
    ("Is there a bench in the image?", "No, wait, yes.", "yes"),
    ("Is there a bench in the image?", "Neither a bench nor a chair is visible.", "no"),
    ("Is there a bench in the image?", "Is there a bench? No.", "no"),
    ("Is there a bench in the image?", "It does.", "yes"),
    ("Is there a bench in the image?", "✅", "yes"),
    ("Is there a bench in the image? A. Yes B. No", "B", "no"),
    ("Is there a bench in the image? A. No B. Yes", "(B)", "yes"),
    ("Is the number of cars in the image greater than the number of dogs?",
     "There are more cars than dogs.", "yes"),
    ("Is the number of cars in the image greater than the number of dogs?",
     "There are fewer cars than dogs.", "no"),
    ("Is the number of cars in the image greater than the number of dogs?",
     "The number of dogs is greater than the number of cars.", "no"),
    ("Is the number of cars in the image greater than the number of dogs?",
     "There are 2 cars and 3 dogs, so no.", "no"),
    ("Is the number of cars in the image greater than the number of dogs?",
     "Both have the same number.", "no"),
)  # fmt: skip


def row(
    names: Mapping[str, str], style: str, question: str, reply: str, says: str | None
) -> dict[str, Any]:
    """A row about an object; braces of JSON and LaTeX in the reply are no places for names."""
    for key, value in names.items():
        reply = reply.replace(f"{{{key}}}", value)
    return {"kind": "yes or no", "style": style, "question": question.format(**names)} | {
        "reply": reply,
        "says": says,
    }


def rows() -> Iterator[dict[str, Any]]:
    """``kind`` (of the question), ``style, question, reply, says``."""
    for number, (a, many, other) in enumerate(OBJECTS):
        one = a.split(" ", 1)[1]
        names = {"a": a, "A": a.capitalize(), "one": one, "many": many, "other": other}

        question = QUESTIONS[number]
        for style, pairs in (WORDS | SENTENCES).items():
            for yes, no in pairs:
                yield row(names, style, question, yes, "yes")
                yield row(names, style, question, no, "no")
                if style in SENTENCES:
                    yield row(names, f"{style}, negated question", NEGATED, yes, "no")
                    yield row(names, f"{style}, negated question", NEGATED, no, "yes")
        for reply in NOTHING:
            yield row(names, "says nothing", question, reply, None)
    for many, one in COUNTED:
        for style, pairs in NUMBERS.items():
            for reply, says in pairs:
                said = reply.replace("{many}", many).replace("{one}", one)
                asked = f"How many {many} are in the image?"
                yield {"kind": "number", "style": style, "question": asked} | {
                    "reply": said,
                    "says": says,
                }
    for reply, says in CHOICES:
        yield {
            "kind": "choice",
            "style": "option",
            "question": CHOICE,
            "reply": reply,
            "says": says,
        }
    for asked, reply, says in BY_HAND:
        yield {"kind": "yes or no", "style": "by hand", "question": asked} | {
            "reply": reply,
            "says": says,
        }


def text() -> str:
    """All of them, one a line."""
    return "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows())


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
