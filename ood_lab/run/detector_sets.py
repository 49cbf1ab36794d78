"""What ``detector=all`` and ``detector=default`` choose of the files of ``conf/detector``."""

from __future__ import annotations

from itertools import takewhile
from pathlib import Path

from hydra.core.config_store import ConfigStore
from omegaconf import OmegaConf

from ood_lab.scripts import CONF

#: Line of a file's header, beside Hydra's own ``# @package``, that puts it into the default set.
DEFAULT = "# @default true"


def detector_names(default: bool = False) -> list[str]:
    """Every file of the folder, or those whose header says that they run by default."""
    files = sorted((CONF / "detector").glob("*.yaml"))
    return [file.stem for file in files if not default or _is_default(file)]


def _is_default(file: Path) -> bool:
    lines = file.read_text(encoding="utf-8").splitlines()
    return DEFAULT in takewhile(lambda line: line.startswith("#"), lines)


def register_detector_sets() -> None:
    """Adds both choices to the group ``detector`` (idempotent); no file has to list the others."""
    store = ConfigStore.instance()
    for choice, names in (("all", detector_names()), ("default", detector_names(default=True))):
        node = OmegaConf.create({"defaults": names})
        store.store(group="detector", name=choice, node=node, provider="ood_lab")
