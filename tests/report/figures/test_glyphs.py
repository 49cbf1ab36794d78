"""Names in any script: drawn by a font that has them, else numbers with a legend in the page."""

import warnings

import pytest
from matplotlib.figure import Figure

from ood_lab.report.rendering.blocks import PlannedFigure
from ood_lab.report.rendering.drawing import RC, write_all


def bars(names):
    figure = Figure()
    axes = figure.subplots()
    axes.barh(range(len(names)), range(len(names)))
    axes.set_yticks(range(len(names)), names)
    axes.set_title(f"accuracy of '{names[0]}' (n=3)", weight="bold")
    return figure


@pytest.mark.parametrize(
    "names", [["早商", "晚商 2"], ["ᜃᜒ", "cat"], ["🦓", "𓀀", "cat"], ["कुत्ता", "แมว"]]
)
def test_no_glyph_is_missing_without_a_legend(tmp_path, names):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        plan = [PlannedFigure("bars", "Bars", "A caption.", lambda: bars(names))]
        (file,) = write_all(tmp_path, plan)
    assert not [w for w in caught if "Glyph" in str(w.message) or "findfont" in str(w.message)]
    if file.caption != "A caption.":  # a machine may have fonts for all of them
        assert file.caption.startswith("A caption. No font of this machine has")
        assert names[0].split()[0] in file.caption
        assert "cat" not in file.caption


def test_names_that_can_be_drawn_stay(tmp_path):
    plan = [PlannedFigure("a", "A", "Words.", lambda: bars(["zèbre", "Ωμέγα", "кот"]))]
    (file,) = write_all(tmp_path, plan)
    assert file.caption == "Words."


def test_a_font_of_the_system_is_used(tmp_path, monkeypatch):
    # matplotlib brings STIX, which has letters that DejaVu Sans lacks.
    monkeypatch.setitem(RC, "font.family", ["DejaVu Sans"])
    plan = [PlannedFigure("a", "A", "Words.", lambda: bars(["\u24ea", "b"]))]
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="Glyph")
        (file,) = write_all(tmp_path, plan)
    assert file.caption == "Words."
