"""The commands of README and docs are ones that this version understands."""

import re
import shlex
from functools import cache
from pathlib import Path

import pytest
from cli import ROOT
from written_pages import DOCS

from ood_lab.run.commandline.line_checks import check_line
from ood_lab.run.commandline.resolvers import register_resolvers
from ood_lab.run.job.launch import PREFLIGHT, read_line
from ood_lab.run.job.stages import stages_of

README = ROOT / "README.md"
GALLERY = ROOT / "docs" / "site" / "gallery.yaml"
#: Of a file that the reader is told to write.
READERS_OWN = "nearest,"


def commands(page: Path) -> list[tuple[str, str]]:
    """Script and arguments of every call, what stands for something filled in or left out."""
    text = page.read_text().replace("\\\n", " ")
    calls = dict.fromkeys(re.findall(r"python (train|eval)\.py([^\n`]*)", text))
    return [
        (script, re.sub(r"<[^>]*>", "DIR", line).split(" #")[0].split("&&")[0].strip())
        for script, line in calls
        if READERS_OWN not in line and "--shell-completion" not in line
    ]


def arguments(line: str) -> list[str]:
    """The words of a shell; the first of ``a|b|c``, and nothing for ``...``."""
    words = [word.split("|")[0] for word in shlex.split(line)]
    return [word for word in words if not word.endswith("...")]


@cache  # pages repeat each other
def not_understood(script: str, line: str) -> str | None:
    """What a command would say before it began, if anything."""
    try:
        overrides = [o for o in read_line(arguments(line))[1].overrides if o != PREFLIGHT]
        if not any(re.match("detector|tuning|experiment|task=.*tun", o) for o in overrides):
            overrides.append("detector=[msp]")  # to compose all of them is most of the time
        if not stages_of(script, overrides):  # composes the line of every stage, if any
            check_line(script, overrides)
    except Exception as error:
        return f"python {script}.py {line}\n    {type(error).__name__}: {error}"
    return None


def _page(page: Path) -> object:
    """A case; each command is composed, which takes a third of a second."""
    marks = [] if page in (README, GALLERY) or page.parent.name == "tutorials" else pytest.mark.slow
    return pytest.param(page, id=page.relative_to(ROOT).as_posix(), marks=marks)


@pytest.mark.parametrize("page", map(_page, [README, *DOCS, GALLERY]))
def test_every_command_is_understood(page):
    register_resolvers()
    wrong = [problem for command in commands(page) if (problem := not_understood(*command))]
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
def test_every_command_of_a_detector_is_understood():
    pages = sorted((ROOT / "docs" / "reference" / "detectors").glob("*.md"))
    assert len(pages) > 40
    for page in pages:
        assert commands(page)
        test_every_command_is_understood(page)


def test_there_are_commands():
    assert sum(len(commands(page)) for page in (README, *DOCS, GALLERY)) > 60
