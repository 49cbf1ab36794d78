"""Error rates of the verdict on the builtin data; ``python -m tests.benchmarks.verdict``.

The images of one run are the population: what holds for all of them is known. Samples are drawn
from it, with replacement, and each has a verdict of its own. Where OOD is drawn from ID, the ID
test images are dealt out instead, so that no image is on both sides.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from ood_lab.api.detector_settings import chosen_detectors
from ood_lab.common.files import read_json
from ood_lab.common.random_streams import Resampling
from ood_lab.detectors.base import COSTS
from ood_lab.evaluation.shift.shift_rulers import IMAGES
from ood_lab.metrics import Evaluation, mean_aurocs, verdict_of
from ood_lab.metrics.record import OF_SETS
from ood_lab.schema.image_columns import CLASS_UNITS, SEVERITY
from ood_lab.shift import Ruler, Sample, read_ruler
from ood_lab.tasks.shift_report import DEGREES, MARKS

ROOT = Path(__file__).parents[2]
SIZES = (30, 100, 300)
#: Of a mean's own interval, which simultaneous ones are at least as wide as.
DRAWS = 50


@dataclass(frozen=True)
class Population:
    """The images of a run: their scores, and their distances to the training images."""

    detectors: list[str]
    costs: Mapping[str, int]
    scores: Mapping[str, pd.DataFrame]
    degrees: Mapping[str, pd.DataFrame]
    marks: pd.DataFrame

    @classmethod
    def of(cls, run: Path) -> Population:
        """All datasets of a finished run but the grid, which no mean counts."""
        tables = [pd.read_parquet(run / name) for name in ("scores.parquet", DEGREES, MARKS)]
        names = list(read_json(run / "manifest.json")["detectors"])
        chosen = chosen_detectors("all", "openood").items()
        costs = {name: COSTS.index(detector.cost) for name, detector in chosen}
        scores, degrees = (
            {str(name): rows for name, rows in table.groupby("dataset") if name != "grid"}
            for table in tables[:2]
        )
        return cls(names, costs, scores, degrees, tables[2])

    @property
    def ood(self) -> list[str]:
        """The OOD datasets."""
        return [name for name in self.scores if name != "test"]

    def evaluation(self, parts: Mapping[str, pd.DataFrame], draws: int = DRAWS) -> Evaluation:
        """Of samples, by the name of the dataset that they stand for."""
        table = pd.concat([rows.assign(dataset=name) for name, rows in parts.items()])
        return Evaluation(table, self.detectors, n_bootstrap=draws, metrics=OF_SETS[:3])

    def sample(self, n: int, rng: np.random.Generator) -> Evaluation:
        """So many images of each dataset, with replacement."""
        parts = {k: rows.iloc[rng.integers(len(rows), size=n)] for k, rows in self.scores.items()}
        return self.evaluation(parts)

    def without_shift(self, n: int, rng: np.random.Generator) -> Evaluation:
        """ID test images dealt out to ID test and to all OOD datasets, at most ``n`` to each."""
        rows = self.scores["test"].iloc[rng.permutation(len(self.scores["test"]))]
        n_ood = min(n, (len(rows) - n) // len(self.ood))
        starts = n + n_ood * np.arange(len(self.ood))
        parts = {k: rows[at : at + n_ood] for k, at in zip(self.ood, starts, strict=True)}
        return self.evaluation({"test": rows[:n], **parts})


def _named(verdict: pd.DataFrame, metric: str) -> set[str]:
    chosen = verdict[(verdict["metric"] == metric) & (verdict["value"] == 1)]
    return set(chosen["detector"].dropna())


def choice(population: Population, rounds: int) -> pd.DataFrame:
    """How often samples agree with all images on the detector, and how often intervals hold."""
    whole = population.evaluation(population.scores, 1000)
    verdict = verdict_of(whole, "net", population.costs)
    best, joint = _named(verdict, "best_set"), mean_aurocs(whole, population.ood)
    first, truth = population.detectors[int(joint.values.argmax())], joint.values
    print(f"All images: best {sorted(best)}, first {first}, {_named(verdict, 'recommended')}")
    rng, lines = np.random.default_rng(0), []
    for n in SIZES:
        found = []
        for _ in range(rounds):
            rows = verdict_of(population.sample(n, rng), "net", population.costs)
            mean = rows[rows["metric"] == "mean_auroc"]
            inside = (mean["ci_low"] <= truth) & (truth <= mean["ci_high"])
            recommended, within = _named(rows, "recommended"), _named(rows, "best_set")
            found.append((recommended <= best, first in within, len(within), inside.all()))
        agree, holds, size, covered = np.array(found, float).mean(axis=0)
        lines.append(
            {
                "images a dataset": n,
                "recommended is in the set of all images": agree,
                "set holds the first of all images": holds,
                "detectors in the set": f"{size:.1f}",
                "all intervals of mean AUROC hold": covered,
            }
        )
    return pd.DataFrame(lines)


def chance(population: Population, rounds: int) -> pd.DataFrame:
    """How often a detector is said to detect images that are ID."""
    rng, lines = np.random.default_rng(1), []
    for n in SIZES:
        samples = [population.without_shift(n, rng) for _ in range(rounds)]
        found = [verdict_of(sample, "net", population.costs) for sample in samples]
        detects, inverted, best = (
            [len(_named(rows, metric)) for rows in found]
            for metric in ("detects", "inverted", "best_set")
        )
        n_ood = len(samples[0].rows_of(population.ood[0]))
        lines.append(
            {
                "images": f"{n} ID, {n_ood} in each OOD dataset",
                "a detector detects": np.mean(np.array(detects) > 0),
                "a detector is inverted": np.mean(np.array(inverted) > 0),
                "detectors in the set": f"{np.mean(best):.1f}",
            }
        )
    return pd.DataFrame(lines)


def rulers(population: Population, rounds: int) -> pd.DataFrame:
    """How often the intervals of the two rulers hold the values of all images."""
    rng, lines = np.random.default_rng(2), []
    for metric, axis in ((CLASS_UNITS, "semantic"), (SEVERITY, "covariate")):
        whole = _read(population, metric, axis, None, rng)
        truth = whole.set_index("dataset")["value"]
        for n in SIZES:
            found = [_read(population, metric, axis, n, rng) for _ in range(rounds)]
            made = pd.concat([rows for rows in found if (rows["metric"] == metric).all()])
            known = truth.loc[made["dataset"]].to_numpy()
            held = (made["ci_low"] <= known) & (known <= made["ci_high"])
            of_sets = held.groupby(made["dataset"]).mean()
            lines.append(
                {
                    "scale": metric,
                    "images a dataset": n,
                    "scale could be made": len(made) / len(truth) / rounds,
                    "intervals hold": held.mean(),
                    "least of the datasets": of_sets.min(),
                }
            )
    return pd.DataFrame(lines)


def _read(
    population: Population, metric: str, axis: str, n: int | None, rng: np.random.Generator
) -> pd.DataFrame:
    """Values of all OOD datasets; of all images without ``n``.

    The population of ID is the test images with marks: for severities these are 200 at most.
    """
    marks = population.marks[population.marks["metric"] == metric]
    of_mark = {mark: rows.set_index("index")["distance"] for mark, rows in marks.groupby("mark")}
    marked = next(iter(of_mark.values())).index
    test = population.degrees["test"].set_index("index")[axis]
    columns = [each.loc[marked].to_numpy(np.float64) for each in (test, *of_mark.values())]
    rows = np.arange(len(marked)) if n is None else rng.integers(len(marked), size=n)
    # An image that is drawn twice is two independent ones, and brings its marks along.
    names = np.array([f"image {place}" for place in range(len(rows))], object)
    sizes = [len(rows), *[IMAGES if metric == SEVERITY else len(rows)] * len(of_mark)]
    scale = [
        Sample(column[rows[:size]], names[:size])
        for column, size in zip(columns, sizes, strict=True)
    ]
    datasets = {}
    for name in population.ood:
        values = population.degrees[name][axis].to_numpy(np.float64)
        chosen = values if n is None else values[rng.integers(len(values), size=n)]
        datasets[name] = Sample(chosen)
    seed = int(rng.integers(2**31))
    return read_ruler(
        Ruler(metric, axis, scale), datasets, resampling=Resampling(draws=1000, seed=seed)
    ).values


def milliseconds(population: Population, repeats: int = 10) -> str:
    """Processor time of the verdict itself, once the tables have been made."""
    evaluation = population.evaluation(population.scores, 1000)
    verdict_of(evaluation, "net", population.costs)  # the bootstrap of the tables
    seconds, of_set = [], []
    for _ in range(repeats):
        start = time.process_time()
        joint = mean_aurocs(evaluation, population.ood)
        joint.best()
        middle = time.process_time()
        verdict_of(evaluation, "net", population.costs)
        of_set.append(middle - start)
        seconds.append(time.process_time() - middle)
    sizes = f"{len(population.detectors)} detectors, {len(population.ood)} OOD datasets"
    first, whole = (1e3 * np.median(each) for each in (of_set, seconds))
    return f"{sizes}: {first:.0f} ms for the set of the best, {whole:.0f} ms for the whole verdict"


def printed(made: Callable[[Population, int], pd.DataFrame], of: Population, rounds: int) -> None:
    """A table of the docs, with what it shows."""
    print(f"\n{made.__doc__} {rounds} samples of each size.\n")
    cells = made(of, rounds).map(lambda v: f"{100 * v:.1f}%" if isinstance(v, float) else str(v))
    for row in [
        [str(head) for head in cells],
        ["---"] * len(cells.columns),
        *cells.to_numpy().tolist(),
    ]:
        print(f"| {' | '.join(row)} |", flush=True)


def finished_run(folder: Path) -> Path:
    """A run of ``train.py``, made in this folder."""
    line = [sys.executable, "train.py", "logger=none", f"paths.outputs={folder}"]
    subprocess.run(line, cwd=ROOT, check=True)
    return next(folder.rglob("DONE")).parent


def main() -> None:
    """Prints all tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=Path, help="of train.py; without it one is made")
    parser.add_argument("--rounds", type=int, default=200)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        population = Population.of(arguments.run or finished_run(Path(folder)))
    print(milliseconds(population))
    for made in (choice, chance, rulers):
        printed(made, population, arguments.rounds)


if __name__ == "__main__":
    main()
