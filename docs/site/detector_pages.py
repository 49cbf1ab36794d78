"""A page for each detector, and the tables of all, from its class and its YAML file."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast, get_args

import configuration
import yaml

from ood_lab.api.detector_settings import chosen_detectors
from ood_lab.detectors import Detector
from ood_lab.detectors.base import Cost, InputType
from ood_lab.detectors.own_score import OwnScore
from ood_lab.models.head_kind import HeadKind, missing

_READS = {
    "logits": "the logits",
    "features": "the features (the input of the last linear layer)",
    "head": "the features and the head (weights of the last linear layer)",
    "network": "the network: feature maps or gradients, during feature extraction",
}
_COSTS: dict[Cost, str] = {
    "logits": "logits only; nothing is added to feature extraction",
    "features": "features only; nothing is added to feature extraction",
    "forward": "feature maps of the forward pass",
    "again": "gradients, or (a part of) the network again",
}
_DEFAULT: list[str] = yaml.safe_load(
    (configuration.CONF / "detector" / "default.yaml").read_text(encoding="utf-8")
)["defaults"]
#: Arguments that have a column of their own in the tables, or none.
_NOT_SETTINGS = ("_target_", "fit_split", "force", "seed")


@dataclass(frozen=True)
class DetectorFile:
    """A file of ``conf/detector`` and the detector that it builds."""

    key: str
    source: str
    content: dict[str, Any]
    kind: Detector

    @property
    def settings(self) -> dict[str, Any]:
        """What can be set, with its default."""
        return cast("dict[str, Any]", self.content["detector"][self.key])

    @property
    def grid(self) -> dict[str, Any]:
        """What ``tuning=val_ood`` tries."""
        return cast("dict[str, Any]", self.content.get("tuning", {}).get("grids", {}).get(self.key))

    @property
    def fitted_on(self) -> str:
        """The split, and whether its labels are read."""
        split = _shown(self.settings["fit_split"]) if "fit_split" in self.settings else "–"
        return split + (", labels" if "labels" in self.kind.reads else "")


def detector_files() -> Iterator[DetectorFile]:
    """All of ``conf/detector``, by name."""
    files = (configuration.CONF / "detector").glob("*.yaml")
    names = sorted(file.stem for file in files if "\ndetector:" in file.read_text())
    for name, detector in chosen_detectors(names, "openood").items():
        source = (configuration.CONF / "detector" / f"{name}.yaml").read_text(encoding="utf-8")
        yield DetectorFile(name, source, yaml.load(source, yaml.CSafeLoader), detector)


def _post_hoc() -> list[DetectorFile]:
    """Those that score any network."""
    return [one for one in detector_files() if not isinstance(one.kind, OwnScore)]


def detector_tables() -> dict[str, str]:
    """A table for each kind of input, one row a detector."""
    found = list(detector_files())
    tables = {}
    for reads in get_args(InputType):
        heads = ["detector", "score", "suspicious where", "fitted on", "settings", "source"]
        rows = [
            [
                f"[`{one.key}`](detectors/{one.key}.md)",
                *(one.kind.formula, one.kind.suspicious, one.fitted_on),
                ", ".join(_short(one)) or "–",
                _paper(one.kind),
            ]
            for one in found
            if one.kind.input_type == reads
        ]
        tables[f"detectors of {reads}"] = table(heads, rows)
    return tables


def head_kinds() -> str:
    """What each detector reads, and on which kinds of head it runs: ✓, or the missing parts."""
    rows = []
    for one in _post_hoc():
        lacks = [", ".join(missing(one.kind.reads, kind.gives)) for kind in HeadKind]
        cells = [f"`{one.key}`", ", ".join(one.kind.reads)]
        rows.append(cells + [f"no {parts}" if parts else "✓" for parts in lacks])
    return table(["key", "reads", *HeadKind], rows)


_NEEDS = {
    "logits": "Logits",
    "features": "Features",
    "head": "Features and linear head",
    "network": "Feature maps or gradients",
}


def detector_map() -> str:
    """A column for each kind of input, the cheapest first, with links from ``how-to``.

    Bold runs by default; a star marks a fit that reads the labels of ID images.
    """
    found = _post_hoc()
    columns = []
    for reads, title in _NEEDS.items():
        names = []
        for one in (one for one in found if one.kind.input_type == reads):
            name = f"`{one.key}`" + ("\\*" if "labels" in one.fitted_on else "")
            name = f"[{name}](../reference/detectors/{one.key}.md)"
            names.append(f"**{name}**" if one.key in _DEFAULT else name)
        columns.append(f"<div markdown>\n\n**{title}**\n\n" + " ".join(names) + "\n\n</div>")
    return "<div class='detector-map' markdown>\n" + "\n".join(columns) + "\n</div>"


def table(heads: list[str], rows: list[list[str]]) -> str:
    """In Markdown."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(
        "| " + " | ".join(c.replace("|", "\\|") for c in line) + " |" for line in lines
    )


def pages() -> dict[str, str]:
    """Markdown of the page of every detector, by its key."""
    return {one.key: _page(one) for one in detector_files()}


def _page(one: DetectorFile) -> str:
    text, arguments = _docstring(type(one.kind))
    title, _, rest = text.partition("\n\n")
    kind = one.kind
    default = "yes" if one.key in _DEFAULT else f"no: `detector=[{one.key}]`"
    if isinstance(kind, OwnScore):
        default = f"for a network that was trained with `loss={one.key}`"
    facts = [
        ("Source", _paper(kind)),
        ("Suspicious where", kind.suspicious),
        ("Reads", _READS[kind.input_type]),
        ("Fitted on", one.fitted_on + ("" if kind.needs_rows else " (class statistics only)")),
        ("Cost", _COSTS[kind.cost]),
        ("Runs by default", default),
    ]
    if one.grid:
        tried = "; ".join(f"`{key}`: {_shown(values)}" for key, values in one.grid.items())
        facts.append(("Tried by `tuning=val_ood`", tried))
    rows = "\n".join(f"| {name} | {value} |".replace("\n", " ") for name, value in facts)
    return (
        f"# `{one.key}`\n\n{title}\n\n| | |\n|---|---|\n{rows}\n\n## Score\n\n"
        f"A higher score is more OOD. Symbols: [detectors](../detectors.md#symbols).\n\n{rest}\n\n"
        f"{_settings(one, arguments)}\n## Example\n\n{_example(one)}\n\nResults: "
        "[CIFAR-10 next to OpenOOD](../../results/cifar10.md).\n"
    )


def _settings(one: DetectorFile, arguments: dict[str, str]) -> str:
    """With their default, what the docstring says of them, and the comment of the YAML."""
    _, options, _, _ = configuration.read(one.source, "")
    prefix = f"detector.{one.key}."
    rows = []
    for option in options:
        name = option.name.removeprefix(prefix)
        if option.name.startswith(prefix) and not name.startswith("_"):
            meaning = arguments.get(name, "").replace("\n", " ")
            comment = " ".join(option.comments)
            default = _shown(one.settings.get(name))
            default = " | ".join(f"`{value}`" for value in default.split(" | "))
            rows.append([f"`{option.name}`", default, meaning, comment])
    if not rows:
        return ""
    return "## Settings\n\n" + table(["setting", "default", "meaning", "values"], rows) + "\n"


def _example(one: DetectorFile) -> str:
    setting = next((key for key in one.settings if key not in _NOT_SETTINGS), None)
    given = ""
    if setting is not None and "preset" not in str(one.settings[setting]):
        value = yaml.safe_dump(one.settings[setting], default_flow_style=True).split("\n")[0]
        given = f" 'detector.{one.key}.{setting}={value.replace(' ', '')}'"
    hooks = f', detectors=["{one.key}"]' if one.kind.input_type == "network" else ""
    passed = f'train=train, test=test, ood={{"svhn": svhn}}, detectors=["{one.key}"]'
    if len(passed) > 73:  # as ruff formats it
        passed = f"\n    {passed}\n"
    command = f"python eval.py ckpt=RUN 'detector=[{one.key}]'{given}\n```"
    if isinstance(one.kind, OwnScore):
        outliers = " data.outliers=DIR" if one.key == "mcd" else ""
        return f"```bash\npython train.py loss={one.key}{outliers}\n{command}"
    return (
        f"```bash\n{command}\n\n"
        "```python\n"
        f"train = ood_lab.extract_features(net, train_loader{hooks})  # also test, svhn\n"
        f"result = ood_lab.evaluate({passed})\n```"
    )


def _docstring(kind: type) -> tuple[str, dict[str, str]]:
    """The description in Markdown, formulas as TeX; and the text of every argument."""
    text, _, below = (inspect.getdoc(kind) or "").partition("\nArgs:\n")
    text = re.split(r"\n(?:Attributes|Raises|Returns):\n", text)[0]
    found = re.findall(r"^    (\w+): ((?:.|\n(?!    \w|\S))*)", below, re.M)
    arguments = {name: _inline(" ".join(said.split())) for name, said in found}
    parts = re.split(r"^\.\. math::(.*(?:\n+ +.*)*)\n?", text, flags=re.M)
    for i, part in enumerate(parts):
        formula = textwrap.dedent(part).strip()
        parts[i] = f"```math\n{formula}\n```" if i % 2 else _inline(part).strip()
    return "\n\n".join(parts).strip(), arguments


def _inline(text: str) -> str:
    """Roles, code and formulas of reStructuredText in Markdown."""
    text = re.sub(r":math:`([^`]*)`", r"$`\1`$", text)
    text = re.sub(r":\w+:`~?([^`]*)`", lambda m: f"`{m[1].rsplit('.', 1)[-1]}`", text)
    return re.sub(r"``([^`]*)``", r"`\1`", text)


def _paper(detector: Detector) -> str:
    """The first paper that the docstring of a class names, or that of a parent's."""
    for kind in type(detector).__mro__:
        text = kind.__doc__ or ""
        if number := re.search(r"arXiv (\d{4}\.\d{4,5})", text):
            return f"[{number[1]}](https://arxiv.org/abs/{number[1]})"
        if conference := re.search(r"\(([A-Z]+ 20\d\d)\b", text):
            return conference[1]
    return ""


def _short(one: DetectorFile) -> Iterator[str]:
    for key, value in one.settings.items():
        if key not in _NOT_SETTINGS:
            yield f"{key} {_shown(value)}"
    if one.grid:
        yield "grid"


def _shown(value: Any) -> str:
    """A value as its YAML has it, with both presets where they differ."""
    both = re.fullmatch(r"\$\{preset:(.*)\}", str(value))
    if both is None:
        return yaml.safe_dump(value, default_flow_style=True).split("\n")[0]
    return " | ".join(re.split(r",(?![^\[]*\])", both[1]))


ROOT = Path(__file__).parents[2]
