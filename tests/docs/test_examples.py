"""The notebooks of examples/: clean in the repository, and every cell runs."""

import json
from pathlib import Path

import matplotlib as mpl
import pytest
from cli import ROOT

BOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
#: Trains nothing but a few layers, and starts no other process.
QUICK = "3_a_detector_of_your_own"


def code(book: Path) -> list[dict]:
    cells = json.loads(book.read_text())["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def test_they_are_stored_without_output():
    assert len(BOOKS) == 4
    for book in BOOKS:
        assert all(cell["outputs"] == [] for cell in code(book)), book
        assert all(cell["execution_count"] is None for cell in code(book)), book


@pytest.mark.parametrize(
    "book",
    [pytest.param(b, marks=[] if b.stem == QUICK else pytest.mark.slow) for b in BOOKS],
    ids=lambda book: book.stem,
)
def test_every_cell_runs(book, tmp_path, monkeypatch):
    """In an empty folder, as one after another in Jupyter, without drawing on a screen."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    mpl.use("Agg")
    names = {"__name__": "__main__"}
    for number, cell in enumerate(code(book)):
        exec(compile("".join(cell["source"]), f"{book.name}, code cell {number}", "exec"), names)
