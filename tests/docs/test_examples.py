"""The notebooks of examples/: every cell runs, and the stored outputs are of the kinds it gives."""

import ast
import json
from pathlib import Path

import matplotlib as mpl
import pandas as pd
import pytest
from cli import ROOT

BOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
#: Trains nothing but a few layers, and starts no other process.
QUICK = "3_a_detector_of_your_own"


def code(book: Path) -> list[dict]:
    cells = json.loads(book.read_text())["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def test_their_outputs_are_stored():
    assert len(BOOKS) == 4
    for book in BOOKS:
        assert book.stat().st_size < 150_000
        assert "/tmp/" not in book.read_text()
        cells = code(book)
        assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
        for output in (output for cell in cells for output in cell["outputs"]):
            assert output["output_type"] != "error", book
            assert not output.get("metadata"), book


@pytest.mark.parametrize(
    "book",
    [pytest.param(b, marks=[] if b.stem == QUICK else pytest.mark.slow) for b in BOOKS],
    ids=lambda book: book.stem,
)
def test_every_cell_runs(book, tmp_path, monkeypatch, capsys):
    """In an empty folder, as one after another in Jupyter, without drawing on a screen."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    mpl.use("Agg")
    names = {"__name__": "__main__"}
    for number, cell in enumerate(code(book)):
        source, place = "".join(cell["source"]), f"{book.name}, code cell {number}"
        tree = ast.parse(source)
        shown = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, place, "exec"), names)
        value = eval(compile(ast.Expression(shown.value), place, "eval"), names) if shown else None
        stored = {kind for output in cell["outputs"] for kind in output.get("data", ["stream"])}
        given = {"stream"} if capsys.readouterr().out else set()
        given |= {"image/png", "text/plain"} if "plt.show()" in source else set()
        given |= {"text/plain"} if value is not None else set()
        given |= {"text/html"} if getattr(value, "_repr_html_", lambda: None)() else set()
        assert stored == given, place
        if isinstance(value, pd.DataFrame):
            (data,) = (output["data"] for output in cell["outputs"])
            assert data["text/plain"][0].split() == repr(value).splitlines()[0].split(), place
