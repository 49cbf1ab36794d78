"""Detectors on CIFAR-10 next to OpenOOD v1.5, as Markdown.

    python -m tests.benchmarks.cifar10 > docs/results/cifar10.md

It needs the images and weights of ``../shared/data``, and takes a few minutes of one core.
"""

from __future__ import annotations

import contextlib
import datetime
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

sys.path.insert(0, str(Path(__file__).parents[1]))
import cifar_openood as openood

COMMAND = "python -m tests.benchmarks.cifar10"
METRICS = ("auroc", "fpr95_ood_positive", "fpr95_id_positive")
#: Of the rows of ``detectors_more.json``.
COLUMNS = ("auroc", "fpr_oodpos", "fpr_idpos")
#: Key, its description, key and number of images in the reference.
SETS = (
    ("inet32", "ImageNet photographs, resized and cropped to 32 pixels", "imagenet32", 763),
    ("crops", "Random 32-pixel crops of the same photographs", "imagenet_crops", 2289),
)
HEAD = """# CIFAR-10 next to OpenOOD

Output of `{command}`, {date}.

ID is CIFAR-10: 10,000 training, 1,000 validation and 5,000 test images, stored as JPEG.
The network is a ResNet-20 with {accuracy:.1f}% ID accuracy.
OpenOOD v1.5 (3c35632) scored the same images with the same weights.
Detectors that OpenOOD lacks were computed by their authors' code or by a plain implementation.
All numbers are in %. Ours have 95% confidence intervals.
[Two FPR95](../explanation/metrics.md) differ in their positive class.

`odin` uses OpenOOD's standard deviations, and `gram` the layers of its authors.
References of FPR95 in rows without settings have one decimal.
`gram` has no reference: OpenOOD uses the true class in place of the predicted one.
The largest difference is {largest:.2f} percentage points, of {where}.
"""


def main() -> None:
    """Prints the page."""
    with tempfile.TemporaryDirectory() as folder:
        with contextlib.redirect_stdout(sys.stderr):
            evaluate = openood.evaluation(Path(folder), n_bootstrap=1000)
            runs = [evaluate(*openood.OWN_RUN), evaluate(*openood.FURTHER_RUN)]
        results = pd.concat([pd.read_parquet(run / "results.parquet") for run in runs])
    print(page(results))


def page(results: pd.DataFrame) -> str:
    """The page, with a table for each OOD dataset."""
    accuracy = 100 * results.loc[results["metric"] == "id_accuracy", "value"].iloc[0]
    cells = results[(results["kind"] == "detection") & results["dataset"].notna()]
    cells = cells.set_index(["detector", "dataset", "metric"])
    rows = {key: list(_rows(cells, *key)) for key in [(one[0], one[2]) for one in SETS]}
    differences = [
        (abs(ours - theirs), f"`{name}` ({METRICS[place]})")
        for table in rows.values()
        for name, _, pairs in table
        for place, (ours, _, theirs) in enumerate(pairs)
        if theirs is not None
    ]
    largest, where = max(differences)
    today = datetime.datetime.now(datetime.UTC).date()
    text = HEAD.format(command=COMMAND, date=today, accuracy=accuracy, largest=largest, where=where)
    for key, title, reference, images in SETS:
        text += f"\n## {title}\n\n{images:,} images.\n\n"
        text += "| detector | settings | AUROC | OpenOOD | FPR95, OOD positive | OpenOOD "
        text += "| FPR95, ID positive | OpenOOD |\n|---|---|---|---|---|---|---|---|\n"
        for name, settings, pairs in rows[key, reference]:
            shown = [
                f"{ours:.2f} {ends} | {'–' if theirs is None else f'{theirs:.2f}'}"
                for ours, ends, theirs in pairs
            ]
            text += f"| `{name}` | {settings} | {' | '.join(shown)} |\n"
    return text.rstrip("\n")


def _rows(cells: pd.DataFrame, dataset: str, reference: str) -> Iterator[Any]:
    """Name, settings, and for each metric our value, its interval and the reference's."""
    for name, values in {**openood.REFERENCE, "gram": (None, None)}.items():
        theirs = values[dataset == "crops"] or (None,) * 3
        yield (
            name,
            "",
            [(*_own(cells, name, dataset, m), t) for m, t in zip(METRICS, theirs, strict=True)],
        )
    for name, (_, given, row) in openood.VARIANTS.items():
        theirs = [openood.MORE[row][reference][column] for column in COLUMNS]
        found = [
            (*_own(cells, f"more_{name}", dataset, m), t)
            for m, t in zip(METRICS, theirs, strict=True)
        ]
        settings = f"`{given.replace(':', '=')}`" if given else ""
        yield row, settings, found


def _own(cells: pd.DataFrame, name: str, dataset: str, metric: str) -> tuple[float, str]:
    row = cells.loc[(name, dataset, metric)]
    low, high = 100 * row["ci_low"], 100 * row["ci_high"]
    return 100 * row["value"], f"[{low:.1f}, {high:.1f}]" if low == low else ""


if __name__ == "__main__":
    main()
