"""Former names of settings and tasks."""

import pytest
from cli import call

from ood_lab.run.commandline.other_names import RENAMED


@pytest.mark.parametrize("old", RENAMED)
def test_a_former_name_is_answered_with_the_present_one(old, capsys):
    line = old if "=" in old else f"{old}=all"
    assert call("eval.py", line) == 1
    assert f"{old} is now {RENAMED[old]}" in " ".join(capsys.readouterr().err.split())
