"""``ood-lab train`` and ``ood-lab eval`` are the two scripts."""

import sys
import tomllib

import pytest
from cli import ROOT
from hydra.utils import get_object

from ood_lab import __version__


@pytest.fixture
def console(monkeypatch, capsys):
    """Calls the entry point that pyproject.toml names."""
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    main = get_object(scripts["ood-lab"].replace(":", "."))

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["ood-lab", *arguments])
        with pytest.raises(SystemExit) as stop:
            main()
        return stop.value.code, *capsys.readouterr()

    return run


def test_it_hands_the_arguments_on(console):
    status, _, error = console("eval", "seeed=1")
    assert status == 1
    assert "unknown key 'seeed'. Did you mean seed?" in error


def test_anything_else_is_told_how_it_is_used(console):
    assert console("--version")[:2] == (0, f"{__version__}\n")
    for arguments, status in [((), 0), (("--help",), 0), (("evl",), 2)]:
        assert console(*arguments)[0] == status
    assert "ood-lab eval" in console()[1]
