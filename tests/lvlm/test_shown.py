"""What the pages of benchmarks say of single replies, and where there is no number."""

import pandas as pd
import pytest

from ood_lab.lvlm.shown import asked_and_said, facts_of


def test_question_and_reply_are_told_apart():
    text = asked_and_said("Is there a mug?\n(yes or no)", " No,\nthere is none. ", "yes")
    assert text == "Q: Is there a mug? (yes or no) · Reply: “No, there is none.” (right: yes)"
    assert asked_and_said("狗在哪里?", "x" * 99, most=5) == "Q: 狗在哪里? · Reply: “xxxxx …”"


@pytest.mark.parametrize(
    ("row", "value", "remark"),
    [
        ((0.5, 0.4, 0.6, 10, 0, 0), "50.0%", "95% interval 40.0 to 60.0"),
        ((None, None, None, 10, 8, 2), "N/A", "no answer could be read"),
        ((None, None, None, 0, 0, 0), "N/A", "nothing was asked"),
        ((None, None, None, 10, 6, 0), "N/A", "too few of 10 answers to say"),
        ((0.5, None, None, 2, 0, 0), "50.0%", "no interval: too few to resample"),
    ],
)
def test_what_is_missing_has_a_reason(row, value, remark):
    names = ["value", "ci_low", "ci_high", "n_asked", "n_unparsed", "n_failed"]
    table = pd.DataFrame([row], columns=names).astype(float)
    table = table.assign(metric="accuracy", split="id", n=1, n_cut=0, unit="pair")
    found = facts_of(table, "accuracy", {"id": "ID"}, "Accuracy")
    assert found == [("Accuracy, ID", value, remark)]
