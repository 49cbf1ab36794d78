"""Detectors by name, with the settings of their YAML."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from ood_lab.common.errors import UserError
from ood_lab.common.hints import suggestion
from ood_lab.detectors import Detector, named
from ood_lab.detectors.base import Detectors
from ood_lab.run.building.nodes import build
from ood_lab.run.commandline.overrides import our_name
from ood_lab.run.commandline.resolvers import register_resolvers
from ood_lab.scripts import conf_files

Chosen = str | Detector | Sequence[str | Detector] | Detectors

#: A setting as it is written on the command line: ``detector.knn.k=5``.
_SETTING = re.compile(r"detector\.(?P<name>\w+)\.(?P<key>\w+)(?P<value>=(\[[^\]]*\]|[^:;,\s]+))?")


def in_python(text: str, chosen: Detectors) -> str:
    """A message with settings in the syntax of Python: ``KNN(k=5)`` for ``detector.knn.k=5``."""

    def written(match: re.Match[str]) -> str:
        name, detector = match["name"], chosen.get(match["name"])
        call = name if detector is None else type(detector).__name__
        value = {"=true": "=True", "=false": "=False", None: "=..."}.get(match["value"])
        return f"detectors={{'{name}': {call}({match['key']}{value or match['value']})}}"

    text = text.replace("remove it from detector=[...]", "remove it from detectors=[...]")
    text = text.replace("tuning.grids.", "tuning_grids.")
    return _SETTING.sub(written, text)


@contextmanager
def explained(chosen: Detectors) -> Iterator[None]:
    """Raises a :class:`UserError` again in the words of :func:`in_python`."""
    try:
        yield
    except UserError as error:
        raise UserError(in_python(str(error), chosen)) from error


def chosen_detectors(chosen: Chosen, preset: str) -> Detectors:
    """Detectors with the settings of their YAML, or those that are given."""
    if isinstance(chosen, Mapping):
        return named(chosen)
    register_resolvers()
    files = {file.stem: file for file in conf_files("detector")}
    built = {}
    for item in [chosen] if isinstance(chosen, str | Detector) else chosen:
        if isinstance(item, Detector):
            built[type(item).__name__.lower()] = item
        elif isinstance(item, str):
            built |= _of_file(our_name(item), files, preset)
        else:
            raise UserError(
                f"detectors has a {type(item).__name__}: give names, or detectors such as KNN(k=5)"
            )
    return named(built)


def default_grids(detectors: Detectors) -> dict[str, Any]:
    """The settings that a tuning tries of these detectors, as their YAML lists them."""
    nodes = (OmegaConf.load(file) for file in conf_files("detector") if file.stem in detectors)
    grids = (OmegaConf.select(node, "tuning.grids", default={}) for node in nodes)
    return {
        name: OmegaConf.to_container(grid) for of_file in grids for name, grid in of_file.items()
    }


def _of_file(name: str, files: Mapping[str, Path], preset: str) -> Detectors:
    """The detector of a YAML file, or those of a file that lists others."""
    if name not in files:
        raise UserError(f"there is no detector '{name}': {suggestion(name, files)}")
    cfg = OmegaConf.merge({"detector_preset": preset}, OmegaConf.load(files[name]))
    if "detector" in cfg:
        return {name: build(cfg, f"detector.{name}")}  # type: ignore[arg-type]
    parts = [_of_file(other, files, preset) for other in cfg.defaults]
    return {key: detector for part in parts for key, detector in part.items()}
