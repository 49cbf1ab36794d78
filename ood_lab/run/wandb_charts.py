"""Charts that a W&B workspace shows without hand work: W&B's own presets over small tables."""

from __future__ import annotations

import pandas as pd
import wandb

from ood_lab.axes import LEVELS

#: Headline metrics, and which way they point.
HEADLINES = {"auroc": "higher is better", "fpr95": "lower is better"}


def charts(results: pd.DataFrame) -> dict[str, wandb.plot.CustomChart]:
    """``{panel: chart}`` of a results table; what it holds no rows for is left out.

    - ``charts/mean_<metric>``: bars, the mean over the whole OOD sets, one a detector.
    - ``charts/dad_fpr95``: points, DAD against mean FPR95.
    - ``charts/<metric>_<axis>``: lines over the shift levels, one a detector.
    """
    found: dict[str, wandb.plot.CustomChart] = {}
    whole = results[results.semantic_level.isna() & results.covariate_level.isna()]
    for metric, direction in HEADLINES.items():
        rows = whole[(whole.metric == metric) & whole.ood.notna()]
        mean = rows.groupby("detector")["value"].mean().sort_values()
        if len(mean):
            title = f"Mean {metric.upper()} over {rows.ood.nunique()} OOD sets ({direction})"
            found[f"charts/mean_{metric}"] = _bar(mean, metric, title)
        for axis in LEVELS:
            found |= _lines(results, metric, axis)
    return found | _scatter(whole)


def _bar(values: pd.Series, metric: str, title: str) -> wandb.plot.CustomChart:
    table = wandb.Table(columns=["detector", metric], data=list(values.items()))
    return wandb.plot.bar(table, "detector", metric, title)


def _lines(results: pd.DataFrame, metric: str, axis: str) -> dict[str, wandb.plot.CustomChart]:
    other = LEVELS[1 - LEVELS.index(axis)]
    rows = results[(results.metric == metric) & results[axis].notna() & results[other].isna()]
    lines = rows.pivot_table(index=axis, columns="detector", values="value", aggfunc="mean")
    if lines.empty:
        return {}
    chart = wandb.plot.line_series(
        xs=lines.index.tolist(),
        ys=[lines[name].tolist() for name in lines],
        keys=[str(name) for name in lines],
        title=f"{metric.upper()} by {axis.replace('_', ' ')}",
        xname=axis,
    )
    return {f"charts/{metric}_{axis}": chart}


def _scatter(whole: pd.DataFrame) -> dict[str, wandb.plot.CustomChart]:
    dad = whole[whole.metric == "dad"].set_index("detector")["value"]
    sets = whole[(whole.metric == "fpr95") & whole.shift_level.notna()]
    points = pd.DataFrame({"fpr95": sets.groupby("detector")["value"].mean(), "dad": dad}).dropna()
    if points.empty:
        return {}
    table = wandb.Table(dataframe=points.rename_axis("detector").reset_index())
    title = "DAD against mean FPR95 (left: detects better, up: follows the shift order)"
    return {"charts/dad_fpr95": wandb.plot.scatter(table, "fpr95", "dad", title)}
