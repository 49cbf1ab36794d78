"""Detectors on CIFAR-10 next to OpenOOD v1.5, as Markdown.

    python -m tests.benchmarks.cifar10 > docs/results/cifar10.md

It needs the images and weights of ``../shared/data``, and takes a few minutes of one core.
"""

from __future__ import annotations

import contextlib
import datetime
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

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
References of FPR95 with lower-case names have one decimal.
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
    """The page, with a table for each OOD dataset, and one of settings."""
    accuracy = 100 * results.loc[results["metric"] == "id_accuracy", "value"].iloc[0]
    cells = results[(results["kind"] == "detection") & results["dataset"].notna()]
    cells = cells.set_index(["detector", "dataset", "metric"])
    found = {key: dict(_rows(cells, key, reference)) for key, _, reference, _ in SETS}
    largest, where = max(
        (abs(ours - theirs), f"`{name}` ({metric})")
        for rows in found.values()
        for name, triples in rows.items()
        for metric, (ours, _, theirs) in zip(METRICS, triples, strict=True)
        if theirs is not None
    )
    today = datetime.datetime.now(datetime.UTC).date()
    text = HEAD.format(command=COMMAND, date=today, accuracy=accuracy, largest=largest, where=where)
    for key, title, _, images in SETS:
        text += f"\n## {title}\n\n{images:,} images.\n\n"
        text += "| detector | AUROC | OpenOOD | FPR95, OOD positive | OpenOOD "
        text += "| FPR95, ID positive | OpenOOD |\n|---|---|---|---|---|---|---|\n"
        for name, triples in found[key].items():
            shown = [
                f"{ours:.2f} {ends} | {'–' if theirs is None else f'{theirs:.2f}'}"
                for ours, ends, theirs in triples
            ]
            text += f"| `{name}` | {' | '.join(shown)} |\n"
    text += "\n## Settings\n\n| row | class | settings |\n|---|---|---|\n"
    for kind, given, row in openood.VARIANTS.values():
        spaced = given.replace(":", "=").replace(",", ", ")
        text += f"| `{row}` | `{kind}` | {f'`{spaced}`' if given else ''} |\n"
    return text.rstrip("\n")


def _rows(
    cells: pd.DataFrame, dataset: str, reference: str
) -> Iterator[tuple[str, list[tuple[float, str, float | None]]]]:
    """Name, and for each metric our value, its interval and the reference's value."""
    for name, values in {**openood.REFERENCE, "gram": ((None,) * 3,) * 2}.items():
        yield name, _triples(cells, name, dataset, values[dataset == "crops"])
    for name, (_, _, row) in openood.VARIANTS.items():
        theirs = [openood.MORE[row][reference][column] for column in COLUMNS]
        yield row, _triples(cells, f"more_{name}", dataset, theirs)


def _triples(
    cells: pd.DataFrame, name: str, dataset: str, theirs: Sequence[float | None]
) -> list[tuple[float, str, float | None]]:
    return [
        (*_own(cells, name, dataset, metric), value)
        for metric, value in zip(METRICS, theirs, strict=True)
    ]


def _own(cells: pd.DataFrame, name: str, dataset: str, metric: str) -> tuple[float, str]:
    row = cells.loc[(name, dataset, metric)]
    low, high = 100 * row["ci_low"], 100 * row["ci_high"]
    return 100 * row["value"], f"[{low:.1f}, {high:.1f}]" if low == low else ""


if __name__ == "__main__":
    main()
