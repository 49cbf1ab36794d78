"""Every parser against the rule that it is named after.

``vlmeval`` and ``mmbench`` are what VLMEvalKit e8e78f0 says (``YOrN_Extraction``; ``can_infer``
with the options A = Yes and B = No, no judge).
"""

import pytest

from ood_lab.errors import UserError
from ood_lab.lvlm.parsers import PARSERS, parser_named

REPLIES = [
    # reply, default, strict, pope, amber, ode, vlmeval, mmbench
    ("Yes", "yes", "yes", "yes", "yes", "yes", "yes", "yes"),
    ("No", "no", "no", "no", "no", "no", "no", "no"),
    (" yes. ", "yes", "yes", "yes", None, None, "yes", "yes"),
    ("No, there is no dog.", "no", None, "no", None, "no", "no", None),
    ("Yes, there is not only one.", "yes", None, "no", None, "yes", "yes", None),
    ("There is a dog. No cat.", "no", None, "yes", None, "no", "no", None),
    ("I do not know.", None, None, "no", None, "no", None, None),
    ("It says no here, so yes", "yes", None, "no", None, "no", None, None),
    ("The answer is yes, not no.", "no", None, "no", None, "no", None, None),
    ("", None, None, "yes", None, None, None, None),
    ("Eyes of a cat", None, None, "yes", None, None, None, None),
    ("A", None, None, "yes", None, None, None, "yes"),
    ("B. no", "no", None, "yes", None, "no", "no", "no"),
    ("A dog is there", None, None, "yes", None, None, None, "yes"),
    ("A dog is over there", None, None, "yes", None, None, None, None),
    ("Answer: (B)", None, None, "yes", None, None, None, "no"),
    ("A no", "no", None, "no", None, "no", "no", "yes"),
    ("**Yes**", "yes", "yes", "yes", None, None, None, "yes"),
    ("yes/no", "yes", None, "yes", None, "no", None, None),
    ("no-one", "no", None, "yes", None, "no", "no", "no"),
    ("yes , _no_", "yes", None, "yes", None, "no", None, None),
    ("yes_ no", "yes", None, "no", None, "no", None, None),
    ("1,204/yes", "yes", None, "yes", None, None, None, "yes"),
    ("I know", None, None, "yes", None, "no", None, "no"),
    ("The answer is both.", None, None, "yes", None, None, None, "no"),
    ("Cannot determine the answer: A", None, None, "yes", None, "no", None, None),
]
NAMES = ("default", "strict", "pope", "amber", "ode", "vlmeval", "mmbench")


@pytest.mark.parametrize("row", REPLIES, ids=lambda row: row[0])
def test_yes_or_no(row):
    reply, *expected = row
    assert [parser_named(name)(reply) for name in NAMES] == expected


@pytest.mark.parametrize("reply", [row[0] for row in REPLIES] + ["YES\n", "\tnO ", "no.", "Yes,"])
def test_lmms_evals_rule_of_pope_compares_with_the_label(reply):
    score = {label: label == reply.lower().strip() for label in ("yes", "no")}
    assert {label: PARSERS["lmms_pope"](reply) == label for label in score} == score


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("3", "3"),
        ("There are 12 cars.", "12"),
        ("1,204 people", "1204"),
        ("two or 3", "2"),
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


def test_unknown_parser_names_the_nearest():
    with pytest.raises(UserError, match="did you mean 'strict'"):
        parser_named("strct")
