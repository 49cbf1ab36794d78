"""Every parser against the rule that it is named after, on 300 replies.

``parser_replies.jsonl`` has what the sources themselves said of each reply: POPE's ``evaluate.py``
(AoiDragon/POPE 08d957b), AMBER's (junyangwang0410/AMBER 534babf) and ODE's (Iridescent-y/ODE
161de51) ``inference.py`` were run on it, each reply with both truths; ``pope_process_results`` and
``mme_process_results`` of lmms-eval 75571cf and 0.7.3; ``YOrN_Extraction`` and ``can_infer`` with
the options A = Yes and B = No of VLMEvalKit e8e78f0, no judge. Those of ``strict`` come from a
second implementation, letter by letter; ``means`` is what a person reads.
"""

import json
import time

import pytest

from ood_lab.common.errors import UserError
from ood_lab.lvlm.parsers import PARSERS, YES_NO_PARSERS, parser_named
from ood_lab.lvlm.parsers.free_text import is_right
from ood_lab.lvlm.parsers.reply_text import read
from tests.benchmarks import reply_styles
from tests.benchmarks.reply_styles import own_parser, reads_right, styled_replies

STYLED = reply_styles.FILE
#: ``kind, reply, means``, and what every rule says of it by the name of its parser.
REPLIES = [
    json.loads(line)
    for line in STYLED.with_name("parser_replies.jsonl").read_text(encoding="utf-8").splitlines()
]
#: What they answer, where a rule reads the question.
QUESTION = "Is there a dog in the image? A. Yes B. No"
#: ``kind, question, reply, says``, written by hand; a few of them are beyond rules.
EVERYDAY = STYLED.with_name("everyday_replies.jsonl")
PUBLISHED = tuple(name for name in YES_NO_PARSERS if name != "default")


def test_there_are_300_replies_of_many_kinds():
    assert len({row["reply"] for row in REPLIES}) == len(REPLIES) == 300
    assert len({row["kind"] for row in REPLIES}) == 16
    for name in ("means", *PUBLISHED):
        said = {row[name] for row in REPLIES}
        assert said == {"yes", "no"} | (set() if name == "pope" else {None}), name


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_parser_says_what_its_source_says(name):
    said = {row["reply"]: parser_named(name)(row["reply"]) for row in REPLIES}
    assert said == {row["reply"]: row[name] for row in REPLIES}


def test_default_reads_what_a_person_reads_in_nearly_all_of_them():
    asked = [{"question": QUESTION, "says": row["means"], **row} for row in REPLIES]
    # Words between marks of deletion, or a second question within the reply, are beyond rules.
    assert sum(reads_right("default", row) for row in asked) >= 0.97 * len(asked)


@pytest.mark.parametrize("kind", ["yes or no", "number", "choice"])
def test_ours_read_everyday_styles_as_a_person_does(kind):
    rows = [row for row in styled_replies() if row["kind"] == kind]
    wrong = [row for row in rows if not reads_right(own_parser(kind), row)]
    assert len(wrong) <= 0.01 * len(rows), wrong[:5]


def test_ours_read_replies_that_no_rule_was_written_for():
    rows = [json.loads(line) for line in EVERYDAY.read_text(encoding="utf-8").splitlines()]
    wrong = [row for row in rows if not reads_right(own_parser(row["kind"]), row)]
    opposite = [row for row in wrong if row["kind"] == "yes or no" and row["says"] is not None]
    said = [PARSERS["default"](row["reply"], row["question"]) for row in opposite]
    assert len(rows) > 500
    assert len(wrong) <= 0.03 * len(rows), wrong
    assert sum(each is not None for each in said) <= 1, opposite  # struck out: ~~yes~~ no


#: By kind of question in ``replies_of_kinds.jsonl``: its parser, and its text.
KINDS = {
    "yes_no": ("default", "Is there a dog in the image?"),
    "count": ("number", "How many dogs are in the image?"),
    "choice": ("choice", "What is the animal?\nA. dog\nB. cat\nC. horse\nD. cow"),
    "free_text": ("text", "What is the animal?"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_replies_of_every_kind_are_read_as_they_are_meant_or_unread(kind):
    """``kind, reply, says`` (of free text: whether it is ``truth``), judged by hand."""
    (name, question), wrong = KINDS[kind], []
    lines = STYLED.with_name("replies_of_kinds.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [row for row in map(json.loads, lines) if row["kind"] == kind]
    for row in rows:
        said = read(row["reply"], PARSERS[name], False, question)
        if kind == "choice" and said:
            said = {"A": "dog", "B": "cat", "C": "horse", "D": "cow"}[said]
        if kind == "free_text":
            said = said is not None and is_right(said, row.get("truth", ["dog"]))
        wrong += [(row, said)] if said != row["says"] else []
    assert len(rows) > 300
    assert not wrong


@pytest.mark.parametrize(
    ("name", "question", "reply", "says"),
    [
        ("default", "图中有狗吗？", "图中有一只狗。", "yes"),
        ("default", "图中有狗吗？", "图中有一只猫。", None),
        ("default", "Is there a kettle?", "图中有一个水壶", None),  # its name is not known
        ("default", "Is there a kettle?", "没有水壶", "no"),
        ("number", "图中有多少只狗？", "三只狗", "3"),
        ("number", "图中有几只狗？", "两只猫", None),
        ("number", "How many kettles are there?", "三个水壶", "3"),
        ("number", "How many people are there?", "Five people: two men and three women.", "5"),
        ("default", "Is there a dog?", "네, 있습니다", None),
        ("number", "How many dogs are there?", "개가 3마리", None),
    ],
)
def test_things_have_names_in_chinese_and_other_languages_are_unread(name, question, reply, says):
    assert PARSERS[name](reply, question) == says


@pytest.mark.parametrize("part", ["5", "1,000,000,", "1, 2, ", "wait ", "a ", "no ", "at first "])
def test_a_model_that_repeats_itself_is_unread_and_quickly_so(part):
    start = time.monotonic()
    for name, question in KINDS.values():
        said = PARSERS[name]((part * 5000)[:5000], question)
        assert name == "text" or said is None or part == "no "
    assert time.monotonic() - start < 20  # a rule of quadratic time takes minutes


def test_the_file_of_styles_is_what_its_templates_give():
    assert len(styled_replies()) >= 300
    assert STYLED.read_text(encoding="utf-8") == reply_styles.text()


def test_every_parser_says_whose_it_is():
    ours = {name for name, parser in PARSERS.items() if parser.source == "ours"}
    assert ours == {"default", "strict", "number", "choice", "option", "text"}
    commits = ("08d957b", "534babf", "161de51", "75571cf", "75571cf", "e8e78f0", "e8e78f0")
    others = [parser for name, parser in PARSERS.items() if name not in ours]
    assert all(commit in p.source for p, commit in zip(others, commits, strict=True))


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("3", "3"),
        ("There are 12 cars.", "12"),
        ("1,204 people", "1204"),
        ("two or 3", None),
        ("There is no car.", "0"),
        ("None", "0"),
        ("a single car", "1"),
        ("Twenty", "20"),
        ("many", None),
        ("There are a total of 3 dogs.", "3"),
        ("No, there are 3.", "3"),
        ("twenty-one", "21"),
        ("Ninety nine of them", "99"),
        ("one hundred and five", "105"),
        ("A hundred", "100"),
        ("There is no one.", "0"),
        ("a dog, no cat", "1"),
        ("someone", None),
        ("", None),
    ],
)
def test_number(reply, expected):
    assert PARSERS["number"](reply) == expected


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (r"\boxed{No}", "no"),
        (r"So, $\boxed{\text{\textbf{Yes}}}$.", "yes"),
        ("None visible.", "no"),
        ("None are visible in the image.", "no"),
        ("I'm sorry, but I don't see one in this image.", "no"),
        ("Unfortunately, there isn't any.", "no"),
        ("I'm sorry, but I don't see.", None),
        ("I'm sorry, but I don't see any image.", None),
        ("I'm sorry, but I can't help with that.", None),
    ],
)
def test_a_thing_is_denied_by_a_word_for_it_and_a_refusal_denies_nothing(reply, expected):
    assert PARSERS["default"](reply, "Is there a bottle in the image?") == expected
    count = {"no": "0", "yes": None, None: None}[expected] if "boxed" not in reply else None
    assert PARSERS["number"](reply, "How many bottles are in the image?") == count


def test_unknown_parser_names_the_nearest():
    with pytest.raises(UserError, match="did you mean 'strict'"):
        parser_named("strct")
