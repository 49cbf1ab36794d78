"""Published numbers: one YAML file per table, one row per number."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import yaml

from ood_lab.common.errors import UserError, reported_as
from ood_lab.common.files import YAML_LOADER
from ood_lab.common.hints import check_known, missing_path, suggestion
from ood_lab.schema.results import Names

#: The files that come with the package, one for each published table.
SHIPPED = files("ood_lab") / "references"
#: Its file of the papers' settings, which has no numbers.
SETTINGS = "settings.yaml"
ABOUT = ("title", "paper", "arxiv", "table", "checkpoint", "data")
#: Makes a run that has these numbers; a file may lack it.
COMMAND = "command"
#: Methods that a run calls otherwise: row → its ``model/detector``, with ``*``; a file may lack it.
NAMES = "names"
PROTOCOL = (
    "model",
    "transform",
    "dataset",
    "id_accuracy",
    "fpr95",
    "aupr",
    "shift_order",
    "n",
    "detectors",
    "benchmark",
    "hardware",
)
#: Metrics that are not a share, so that they are printed as they are and not in percent.
PLAIN_METRICS = ("dad", "correlation", "images", "questions", "seconds", "min_distance", "rank")

Field = tuple[str, ...]
_LEVELLED = re.compile(r"^(.+?)(?: semantic (\d+))?(?: covariate (\d+))?$")


@dataclass(frozen=True)
class Reference:
    """One published table.

    Attributes:
        name: stem of its file.
        about: ``title, paper, arxiv, table, checkpoint, data`` and perhaps ``command``.
        names: of methods in runs, see :data:`NAMES`.
        protocol: how it was measured, by path: ``("n", "test")``, ``("detectors", "knn", "k")``.
        tolerance: by metric, in the unit of the value.
    """

    name: str
    about: Mapping[str, str | None]
    names: Names
    protocol: Mapping[Field, Any]
    tolerance: Mapping[str, float]


@dataclass(frozen=True)
class PublishedRow:
    """One published number, as printed (percent, except DAD and correlations).

    ``spread`` is what is printed after ±, None where nothing is.
    """

    reference: Reference
    detector: str
    ood: str
    metric: str
    value: float
    spread: float | None

    @property
    def name(self) -> str:
        """``file/detector/set/metric``."""
        return f"{self.reference.name}/{self.detector}/{self.ood}/{self.metric}"

    @property
    def printed(self) -> str:
        """The number as text, with its spread."""
        return f"{self.value:.12g}" + (f" ± {self.spread:g}" if self.spread is not None else "")

    @property
    def place(self) -> tuple[str, list[float]]:
        """The set, and its semantic and covariate level, NaN = all: ``grid semantic 0``."""
        name, *levels = _LEVELLED.findall(self.ood)[0]
        return name, [float(level or "nan") for level in levels]

    @property
    def tolerance(self) -> float:
        """Largest difference that still counts as the same number."""
        return self.reference.tolerance[self.metric]

    @property
    def scale(self) -> float:
        """What a value of the results table is multiplied by to be comparable."""
        return 1 if self.metric.startswith(PLAIN_METRICS) else 100

    def protocol(self) -> Iterator[tuple[Field, Any]]:
        """The protocol fields that bear on this number; None = it needs one that is not stated."""
        several_sets = self.ood in ("all", "mean")
        of_network = self.detector not in self.reference.names  # others bring their own
        relevant = {
            **dict.fromkeys(("model", "id_accuracy"), of_network),
            "hardware": self.metric == "seconds",
            "fpr95": self.metric.startswith("dad") or self.metric.endswith("fpr95"),
            "aupr": "aupr_" in self.metric,
            "shift_order": self.ood == "all",  # a mean has no order
        }
        for path, value in self.reference.protocol.items():
            wanted = relevant.get(path[0], True)
            if path[0] == "detectors":
                wanted = path[1] == self.detector
            elif path[0] == "n":
                wanted = several_sets or path[1] in ("test", self.place[0].partition(", ")[0])
            if wanted:
                yield path, value
        if ("benchmark",) in self.reference.protocol and of_network:
            yield ("model",), self.detector
        for needed in ("fpr95", "aupr"):
            if relevant[needed] and (needed,) not in self.reference.protocol:
                yield (needed,), None


def read_references(folder: str | Path | None = None) -> list[PublishedRow]:
    """All rows of the files in ``folder``; None = those that come with the package.

    Raises:
        UserError: no such folder, no file in it, or a file that is not as it should be.
    """
    if folder is not None and not Path(folder).is_dir():
        raise missing_path(Path(folder))
    return list(_shipped()) if folder is None else _read_all(Path(folder))


@cache
def _shipped() -> list[PublishedRow]:
    return _read_all(SHIPPED)


def _read_all(place: Traversable) -> list[PublishedRow]:
    tables = (f for f in place.iterdir() if f.name.endswith(".yaml") and f.name != SETTINGS)
    matches = sorted(tables, key=lambda f: f.name)
    if not matches:
        raise UserError(f"there is no reference file (*.yaml) in {place}")
    return [row for file in matches for row in _read(file)]


def matching_rows(rows: Iterable[PublishedRow], pattern: str) -> list[PublishedRow]:
    """Rows whose name, or the beginning of it up to a slash, fits ``pattern`` (``*`` = anything).

    Raises:
        UserError: there is none; the message holds the nearest name.
    """
    rows = list(rows)
    matches = [
        r for r in rows if fnmatchcase(r.name, pattern) or fnmatchcase(r.name, f"{pattern}/*")
    ]
    if matches:
        return matches
    depth = pattern.count("/") + 1
    names = dict.fromkeys("/".join(row.name.split("/")[:depth]) for row in rows)
    raise UserError(f"task.row={pattern} matches no published number: {suggestion(pattern, names)}")


def _read(file: Traversable) -> Iterator[PublishedRow]:
    with reported_as(f"{file} is not valid YAML: {{reason}}", yaml.YAMLError):
        content = yaml.load(file.read_text(encoding="utf-8"), YAML_LOADER)
    keys = {*ABOUT, "protocol", "tolerance", "rows"}
    present = set(content) - {COMMAND, NAMES} if isinstance(content, Mapping) else set()
    if present != keys:
        wrong = [f"no {k}" for k in sorted(keys - present)] + sorted(map(str, present - keys))
        raise UserError(f"{file}: expected the keys {', '.join(sorted(keys))}; found {wrong}")
    protocol = dict(_flat(content["protocol"] or {}))
    named = sorted({path[0] for path in protocol})
    check_known(named, PROTOCOL, f"{file}: protocol.{{name}} is unknown")
    about = {key: content.get(key) for key in (*ABOUT, COMMAND)}
    stem, names = file.name.removesuffix(".yaml"), content.get(NAMES, {})
    reference = Reference(stem, about, names, protocol, content["tolerance"])
    for path, cell in _flat(content["rows"]):
        number = re.fullmatch(r"(-?[\d.]+)(?: ± ([\d.]+))?", str(cell))
        if len(path) != 3 or number is None:
            raise UserError(
                f"{file}: rows.{'.'.join(path)} is not of the form detector.set.metric: number"
            )
        if path[2] not in reference.tolerance:
            raise UserError(f"{file}: tolerance.{path[2]} is missing")
        (detector, ood, metric), (value, spread) = path, number.groups()
        spread = float(spread) if spread else None
        yield PublishedRow(reference, detector, ood, metric, float(value), spread)


def _flat(node: Any, path: Field = ()) -> Iterator[tuple[Field, Any]]:
    if isinstance(node, Mapping):
        for key, value in node.items():
            yield from _flat(value, (*path, str(key)))
    else:
        yield path, node
