"""Synthetic results and scores with the schema of a run folder."""

from types import SimpleNamespace

import numpy as np
import pandas as pd

from ood_lab.metrics.results_rows import KIND
from ood_lab.report.detection.figure_inputs import FigureInputs
from ood_lab.report.detection.run_figures import level_figures, planned_figures
from ood_lab.report.rendering.drawing import write_all
from ood_lab.report.results_lookup import RunView
from ood_lab.schema.run_record import RunRecord

COLUMNS = [
    *("model", "detector", "dataset", "shift_level", "semantic_level", "covariate_level"),
    *("n_id", "n_ood", "metric", "value", "ci_low", "ci_high", "seed"),
]
NAMES = [
    "vim",
    "mds",
    "knn",
    "react",
    "ebo",
    "mls",
    "dice",
    "gradnorm",
    "msp",
    "odin",
    "openmax",
    "kl_matching",
    "gram",
    "rankfeat",
    "ash",
]
SETS = [
    "transferred_bronze",
    "transferred_container",
    "sketch_rubbing",
    "container",
    "general",
    "very_long_set_name_of_a_user",
    "textures",
    "places365",
]


def auroc(id_scores, ood_scores):
    pooled = np.concatenate([id_scores, ood_scores])
    ranks = pooled.argsort().argsort()[len(id_scores) :] + 1
    n, m = len(id_scores), len(ood_scores)
    return (ranks.sum() - m * (m + 1) / 2) / (n * m)


def fpr95(id_scores, ood_scores):
    return float((id_scores >= np.quantile(ood_scores, 0.05)).mean())


def make_scores(detectors, sets, n_id=300, n_ood=120, per_cell=15, levels=4, seed=0):
    rng = np.random.default_rng(seed)
    classes = 6
    frames = []

    def frame(dataset, n, shift, label, sem=np.nan, cov=np.nan):
        scores = {
            d: rng.normal(shift * (1 + 1.5 * np.cos(i)) * 0.9, 1 + 0.1 * shift, n) * 10 ** (i % 3)
            for i, d in enumerate(detectors)
        }
        head = {
            "dataset": dataset,
            "index": 0,
            "path": "",
            "label": label,
            "pred": rng.integers(0, classes, n),
            "semantic_level": sem,
            "covariate_level": cov,
        }
        frames.append(pd.DataFrame({**head, **scores}))

    labels = rng.integers(0, classes, n_id)
    frame("test", n_id, 0.0, labels)
    keep = rng.random(n_id) < 0.85
    frames[0].loc[keep, "pred"] = labels[keep]
    for k, ood in enumerate(sets):
        frame(ood, n_ood, 0.6 + 0.45 * k, -1)
    for sem in range(levels) if levels else ():
        for cov in range(levels):
            few = 2 if (sem, cov) == (0, levels - 1) else per_cell
            frame("grid", few, 0.3 + 0.5 * sem + 0.25 * cov, -1, sem, cov)
    table = pd.concat(frames, ignore_index=True)
    table["index"] = table.groupby("dataset").cumcount()
    table["path"] = table["dataset"] + "/" + table["index"].astype(str) + ".png"
    return table


def make_results(scores, detectors, sets, min_n=10):
    rows = []
    test = scores[scores.dataset == "test"]

    def row(
        metric,
        value,
        detector=np.nan,
        dataset=np.nan,
        shift=np.nan,
        sem=np.nan,
        cov=np.nan,
        n_ood=0,
        half=0.02,
    ):
        rows.append(
            (
                "resnet",
                detector,
                dataset,
                shift,
                sem,
                cov,
                len(test),
                n_ood,
                metric,
                value,
                value - half,
                value + half,
                0,
            )
        )

    def both(d, part, **where):
        few = len(part) < min_n
        a = np.nan if few else auroc(test[d].to_numpy(), part[d].to_numpy())
        f = np.nan if few else fpr95(test[d].to_numpy(), part[d].to_numpy())
        row("auroc", a, d, n_ood=len(part), **where)
        row("fpr95", f, d, n_ood=len(part), **where)
        return a, f

    row("id_accuracy", float((test.label == test.pred).mean()))
    for d in detectors:
        pairs = [
            both(d, scores[scores.dataset == ood], dataset=ood, shift=k + 1)
            for k, ood in enumerate(sets)
        ]
        for name, of_sets in zip(("auroc", "fpr95"), zip(*pairs, strict=True), strict=True):
            if len(sets) > 1:
                row(f"mean_{name}", float(np.mean(of_sets)), d)
        values = [fpr for _, fpr in pairs]
        dad = sum(values[j] > values[k] for k in range(len(values)) for j in range(k))
        row("dad", float(dad), d, half=1)
        grid = scores[scores.dataset == "grid"]
        for axis, key in (("semantic", "sem"), ("covariate", "cov")):
            curves = [
                both(d, part, dataset="grid", **{key: level})
                for level, part in grid.groupby(f"{axis}_level")
            ]
            if not curves:
                continue
            for name, curve in zip(("auroc", "fpr95"), np.array(curves).T, strict=True):
                x = np.arange(len(curve))
                row(f"correlation_{axis}_{name}", np.corrcoef(x, curve)[0, 1], d, "grid")
                row(f"sensitivity_{axis}_{name}", abs(np.polyfit(x, curve, 1)[0]), d, "grid")
        for (sem, cov), part in grid.groupby(["semantic_level", "covariate_level"]):
            both(d, part, dataset="grid", sem=sem, cov=cov)
    table = pd.DataFrame(rows, columns=COLUMNS)
    return KIND.table(table, model="resnet", seed=0)


def view_of(results, significance=None, reads=None, **manifest):
    """A run with such a manifest; ``reads``: detector → what it looks at."""
    detectors = {name: {"input_type": kind} for name, kind in (reads or {}).items()}
    return RunView(results, significance, RunRecord(**{"detectors": detectors, **manifest}))


def make_run(n_detectors=5, n_sets=3, **options):
    detectors, sets = NAMES[:n_detectors], SETS[:n_sets]
    scores = make_scores(detectors, sets, **options)
    return SimpleNamespace(
        detectors=detectors,
        sets=sets,
        scores=scores,
        results=make_results(scores, detectors, sets),
    )


def without_levels(results):
    """The same results with too few images at every level."""
    levels = results["semantic_level"].notna() | results["covariate_level"].notna()
    trends = results["metric"].str.contains("_semantic_|_covariate_")
    values = ["value", "ci_low", "ci_high"]
    return results.assign(**{c: results[c].mask(levels | trends) for c in values})


def write_figures(folder, view, scores, features=None):
    """Draws all figures of a run."""
    inputs = FigureInputs(view, scores, features or {}, ())
    by_level = [figure for ood in view.level_sets for figure in level_figures(inputs, ood)]
    return write_all(folder, [*planned_figures(inputs), *by_level])
