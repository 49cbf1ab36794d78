"""What the pages of benchmarks say of single replies."""

from ood_lab.lvlm.pages.benchmark_page import asked_and_said, quoted


def test_question_and_reply_are_told_apart():
    text = asked_and_said("Is there a mug?\n(yes or no)", " No,\nthere is none. ", "yes")
    assert text == "Q: Is there a mug? (yes or no) · Reply: “No, there is none.” (right: yes)"
    cut = asked_and_said("狗在哪里?", "x" * 99, "no")
    assert cut == f"Q: 狗在哪里? · Reply: “{'x' * 60} …” (right: no)"
    assert quoted("x" * 99, 5) == "“xxxxx …”"
