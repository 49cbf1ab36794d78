import pandas as pd

from ood_lab.lvlm.benchmarks.oodbench.page import purified_figures
from ood_lab.report.rendering.blocks import Folded


def test_every_category_has_a_panel_of_its_purified_probabilities():
    names = [f"c{k:02}" for k in range(26) for _ in range(30 - k)]
    division = pd.DataFrame({"category": names, "p_clip": 0.3})
    first, others = purified_figures(division, 0.05)
    assert isinstance(others, Folded)
    assert others.page_only
    titles = [axes.get_title() for plan in (first, *others.blocks) for axes in plan.draw().axes]
    sizes = [f"c{k:02}, n {30 - k}" for k in range(26)]
    assert titles == [f"all categories, n {len(names)}", *sizes]
    few = list(purified_figures(division.iloc[:40], 0.05))
    assert [plan.name for plan in few] == ["purified"]
