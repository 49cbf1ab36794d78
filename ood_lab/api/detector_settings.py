"""Detectors by name, with the settings of their YAML."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from omegaconf import OmegaConf

from ood_lab.common.errors import UserError
from ood_lab.common.hints import suggestion
from ood_lab.detectors import Detector
from ood_lab.detectors.base import Detectors
from ood_lab.run.building.nodes import build
from ood_lab.run.commandline.other_names import own_name
from ood_lab.run.commandline.resolvers import detector_sets, register_resolvers
from ood_lab.scripts import conf_files

Chosen = str | Detector | Sequence[str | Detector] | Detectors

#: A setting as it is written on the command line: ``detector.knn.k=5``.
_SETTING = re.compile(r"detector\.(?P<name>\w+)\.(?P<key>\w+)(?P<value>=(\[[^\]]*\]|[^:;,\s]+))?")


def in_python(text: str, chosen: Detectors) -> str:
    """A message with settings in the syntax of Python: ``KNN(k=5)`` for ``detector.knn.k=5``."""

    def written(found: re.Match[str]) -> str:
        name, detector = found["name"], chosen.get(found["name"])
        call = name if detector is None else type(detector).__name__
        value = {"=true": "=True", "=false": "=False", None: "=..."}.get(found["value"])
        return f"detectors={{'{name}': {call}({found['key']}{value or found['value']})}}"

    text = text.replace("remove it from detector=[...]", "remove it from detectors=[...]")
    return _SETTING.sub(written, text)


@contextmanager
def explained(chosen: Detectors) -> Iterator[None]:
    """Raises a :class:`UserError` again in the words of :func:`in_python`."""
    try:
        yield
    except UserError as error:
        raise UserError(in_python(str(error), chosen)) from error


def chosen_detectors(chosen: Chosen, preset: str) -> dict[str, Detector]:
    """Detectors with the settings of their YAML, or those that are given."""
    if isinstance(chosen, Mapping):
        for name, own in chosen.items():
            own.name = name
        return dict(chosen)
    if isinstance(chosen, Detector):
        chosen = [chosen]
    sets = detector_sets()
    names = sets.get(chosen, [chosen]) if isinstance(chosen, str) else list(chosen)
    register_resolvers()
    built: dict[str, Detector] = {}
    files = {file.stem: file for file in conf_files("detector")}
    for item in names:
        if isinstance(item, Detector):
            item.name = type(item).__name__.lower()
            built[item.name] = item
            continue
        if not isinstance(item, str):
            raise UserError(
                f"detectors has a {type(item).__name__}: give names, or detectors such as KNN(k=5)"
            )
        name = own_name(item)
        if name not in sets["all"]:
            raise UserError(
                f"there is no detector '{name}': {suggestion(name, [*sets, *sets['all']])}"
            )
        file = OmegaConf.load(files[name])
        cfg = OmegaConf.merge({"detector_preset": preset}, file)
        detector: Detector = build(cfg, f"detector.{name}")  # type: ignore[arg-type]
        detector.name = name
        built[name] = detector
    return built
