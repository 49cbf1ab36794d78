"""``--help`` is a page for newcomers, at the width of a terminal."""

import re
import subprocess
import sys

import pytest
from cli import call

from ood_lab.scripts import CONF

# What nobody chooses by hand, or only beside something else.
HIDDEN = {
    "augmentation",
    "concepts",
    "generator",
    "hydra/help",
    "judge",
    "loss",
    "reader",
    "recipe/loss",
    "recipe/model",
    "recipe/prompt",
    "script",
    "task/construction/criteria",
}


@pytest.fixture(scope="module", params=["train", "eval"])
def page(request):
    """The name of the script and the lines of its page."""
    with pytest.MonkeyPatch.context() as patch:
        lines = []
        patch.setattr("builtins.print", lambda *words, **_: lines.append(" ".join(map(str, words))))
        assert call(f"{request.param}.py", "--help") == 0
    return request.param, "\n".join(lines).splitlines()


def test_it_begins_with_what_to_type(page):
    script, lines = page
    (first, *_) = [line for line in lines if line.startswith("  python ")]
    assert first.split() == ["python", f"{script}.py", *(["ckpt=RUN"] * (script == "eval"))]
    assert lines.index(first) < 4


def test_it_fits_a_terminal_and_is_a_page(page):
    _, lines = page
    assert max(map(len, lines)) <= 80
    assert len(lines) < 80


def test_every_group_has_a_line_with_its_choices(page):
    _, lines = page
    folders = {path.parent for path in CONF.rglob("*.yaml")} - {CONF}
    groups = {str(folder.relative_to(CONF)) for folder in folders} - HIDDEN
    table = {line.split()[0]: line for line in lines if re.match(r"  [a-z_/]+ +\S[^:]*: ", line)}
    assert groups <= table.keys()
    assert table["data"].partition(": ")[2].startswith("vessels, folder, cifar10, ")
    assert table["clip"].endswith(": tiny, open_clip, scenes, vit_b16, vit_b32")


def test_eval_has_a_line_for_every_task(page):
    script, lines = page
    tasks = {path.stem for path in (CONF / "task").glob("*.yaml")}
    described = {line.split()[0] for line in lines if re.match(r"  \w+ +[A-Z].*[.)]$", line)}
    assert (tasks <= described) == (script == "eval")


@pytest.mark.slow
def test_a_reader_that_leaves_early_causes_no_traceback():
    line = [sys.executable, str(CONF.parent / "eval.py"), "--help"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as job:
        job.stdout.close()
        assert job.stderr.read() == b""
