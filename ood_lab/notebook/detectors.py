"""Detectors by name, with the settings of their YAML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from omegaconf import OmegaConf

from ood_lab.detectors import Detector
from ood_lab.errors import UserError
from ood_lab.hints import suggestion
from ood_lab.run.nodes import build
from ood_lab.run.resolvers import detector_names, register_resolvers
from ood_lab.scripts import CONF

Chosen = str | Sequence[str] | Mapping[str, Detector]


def chosen_detectors(chosen: Chosen, preset: str) -> dict[str, Detector]:
    """Detectors with the settings of their YAML, or those that are given."""
    if isinstance(chosen, Mapping):
        for name, own in chosen.items():
            own.name = name
        return dict(chosen)
    sets = {"default": detector_names(default=True), "all": detector_names()}
    names = sets.get(chosen, [chosen]) if isinstance(chosen, str) else list(chosen)
    register_resolvers()
    built = {}
    for name in names:
        if name not in sets["all"]:
            raise UserError(
                f"there is no detector '{name}': {suggestion(name, [*sets, *sets['all']])}"
            )
        file = OmegaConf.load(CONF / "detector" / f"{name}.yaml")
        cfg = OmegaConf.merge({"detector_preset": preset}, file)
        detector: Detector = build(cfg, f"detector.{name}")  # type: ignore[arg-type]
        detector.name = name
        built[name] = detector
    return built
