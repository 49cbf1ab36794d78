"""What counts of a reply: reasoning left out, cut replies read only where they are settled."""

import json
from dataclasses import replace

import pytest

from ood_lab.lvlm.answers.answer_requests import answer_of, recorded_answers
from ood_lab.lvlm.answers.judgements import PARSED, UNPARSED, judge, sizes_of
from ood_lab.lvlm.captions.caption_rules import CaptionRules
from ood_lab.lvlm.captions.caption_scoring import caption_table
from ood_lab.lvlm.captions.nouns import Lexicon
from ood_lab.lvlm.chat.base import Reply
from ood_lab.lvlm.parsers import PARSERS
from ood_lab.lvlm.parsers.reply_text import read, with_known_tags, without_reasoning
from ood_lab.lvlm.questions.question_files import GENERATIVE, Question

THOUGHT = "<think>Is there no dog? I see none, no.</think>"


@pytest.mark.parametrize(
    ("reply", "rest"),
    [
        ("Yes.", "Yes."),
        (" as it came \n", " as it came \n"),
        (f"{THOUGHT}\n\nYes.", "Yes."),
        ("I see none, no.</think> Yes.", "Yes."),  # opened by the chat template
        ("<think>I see none, no", ""),
        (f"{THOUGHT} Well. <Reasoning>no</Reasoning>yes", "Well. yes"),
        ("<answer>no</answer>", "<answer>no</answer>"),
        ("[THINK]no dog?[/THINK]Yes", "Yes"),
        ("<seed:think>5?</seed:think>2", "2"),
        ("<thought>no</thought>Yes", "Yes"),
        ("no dog?[/THINK]Yes", "Yes"),
        (
            "<|channel|>analysis<|message|>No?<|end|><|start|>assistant<|channel|>final<|message|>Yes",
            "Yes",
        ),
        ("<|channel|>final <|constrain|>JSON<|message|>{}<|return|>", "{}"),
        ("<|channel|>analysis<|message|>The user asks whether", ""),
        ("analysisWe see no dog.assistantfinalYes.", "Yes."),
        ("An analysis of the image: no.", "An analysis of the image: no."),
    ],
)
def test_reasoning_is_left_out(reply, rest):
    assert without_reasoning(reply) == rest


def test_further_tags_are_named():
    reply = with_known_tags("[plan]no[/plan]Yes", [("[plan]", "[/plan]")])
    assert without_reasoning(reply) == "Yes"


@pytest.mark.parametrize("parser", PARSERS)
def test_a_cut_thought_says_nothing_to_any_parser(parser):
    cut = "<think>The user asks whether there is no dog. There are 3, no"
    assert read(cut, PARSERS[parser], cut=True) is None
    assert read(cut.removeprefix("<think>"), PARSERS["default"], cut=True) is None


@pytest.mark.parametrize(
    ("parser", "reply", "found"),
    [
        ("default", "Yes, there is a dog on the", "yes"),
        ("default", "There is no dog, but wait, is", None),
        ("default", "Yes", "yes"),  # max_tokens=1 cuts every reply
        ("strict", "No", "no"),
        ("mmbench", "A", "yes"),
        ("pope", "There is no dog. The image", "no"),
        ("pope", "There is a dog. The image", "yes"),
        ("pope", "There is a dog on", None),
        ("number", "2", "2"),
        ("number", "Let me count the dogs in", None),
    ],
)
def test_a_cut_reply_counts_where_nothing_that_follows_can_change_it(parser, reply, found):
    assert read(reply, PARSERS[parser], cut=True) == found


def answer(name, response, reason="stop"):
    return answer_of(
        Question(name, "yes_no", None, "Is it?", "no"),
        "h",
        {},
        Reply("k", response, finish_reason=reason),
    )


@pytest.mark.parametrize("response", ["", "<think>A dog and", "[THINK]A dog.[/THINK]"])
def test_a_caption_without_words_is_unread_and_not_a_clean_one(response):
    meta = {"truth": ["cat"], "hallu": []}
    question = Question("q", GENERATIVE, None, "Describe it.", "", "caption", meta=meta)
    refused = replace(answer("q", response), reasoning="I may not.")
    table = caption_table([question], {"q": refused}, CaptionRules({"cat", "dog"}), Lexicon())
    assert table["status"].tolist() == [UNPARSED]


def test_a_recorded_reply_that_is_null_is_unread(tmp_path):
    lines = [{"response": None, "refusal": "No."}, {"response": None}, {"response": "Yes"}]
    file = tmp_path / "replies.jsonl"
    file.write_text("".join(f"{json.dumps(x | {'question_id': n})}\n" for n, x in enumerate(lines)))
    questions = [Question(str(n), "yes_no", None, "Is it?", "no", "pope") for n in range(3)]
    found = recorded_answers(questions, file, tmp_path)
    judged = judge(questions, {each.question_id: each for each in found})
    assert judged["status"].tolist() == [UNPARSED, UNPARSED, PARSED]


def test_cut_replies_are_counted_and_without_an_answer_unparsed():
    questions = [Question(str(i), "yes_no", None, "Is it?", "no") for i in range(3)]
    replies = [answer("0", f"{THOUGHT}No"), answer("1", THOUGHT[:20], "length")]
    replies.append(answer("2", "No, there is", "length"))
    judged = judge(questions, {a.question_id: a for a in replies})
    assert judged["status"].tolist() == [PARSED, UNPARSED, PARSED]
    assert judged["reply"].tolist() == ["No", "", "No, there is"]
    assert sizes_of(judged) == {"n_asked": 3, "n_unparsed": 1, "n_cut": 2, "n_failed": 0}
