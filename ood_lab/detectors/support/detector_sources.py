"""Every detector with what it reads and its source, from the classes and their YAML files."""

from __future__ import annotations

from collections.abc import Iterator
from pydoc import locate
from typing import cast

import yaml

from ood_lab.common.files import YAML_LOADER
from ood_lab.detectors.base import Detector
from ood_lab.scripts import conf_files


def sources() -> Iterator[tuple[str, str, str]]:
    """Key, input type and source of every detector, those of the user's own folder too."""
    for file in conf_files("detector"):
        content = yaml.load(file.read_text(encoding="utf-8"), YAML_LOADER)
        node = (content.get("detector") or {}).get(file.stem)
        if node:
            found = cast("type[Detector]", locate(node["_target_"]))
            yield file.stem, found.input_type, found.source
