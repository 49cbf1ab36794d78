"""What a job is to read is looked for before packages are loaded, which takes seconds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ood_lab.hints import missing_path
from ood_lab.run import checkpoints
from ood_lab.run.workspace import Workspace

#: Groups of sources of ``data=folder``. Those of ``csid`` are read for the full spectrum alone.
_SOURCES = ("id", "ood", "ood_val", "csid")


def check_places(ws: Workspace) -> None:
    """Looks for weights, for the sources of one's own data, and for the images to predict.

    Tasks that tell of missing data themselves, as a check of the data does, are left alone.

    Raises:
        UserError: a file or folder does not exist, or no weights are named.
    """
    for place in _places(ws):
        if not Path(place).expanduser().exists():
            raise missing_path(place)
    if not ws.trains and "backbone" in ws.uses:
        checkpoints.check_weights(ws.cfg)


def _places(ws: Workspace) -> Iterator[str]:
    task = ws.settings["task"]
    if "images" in task:
        yield from _paths(task["images"])
    # Saved detectors need no data.
    passes = {"data", "extractor"} <= ws.uses and not task.get("detector_file")
    data = ws.settings["data"] if ws.trains or passes else {}
    if "id" in data:  # not data whose sources lie below a root of their own
        for group in _SOURCES:
            if group != "csid" or data.get("full_spectrum"):
                for source in (data.get(group) or {}).values():
                    yield from _paths(source)
        yield from _paths(data.get("hierarchy"))


def _paths(source: Any) -> Iterator[str]:
    """The path of a source, which may say where the paths in it start from."""
    path = source.get("path") if isinstance(source, Mapping) else source
    if isinstance(path, str):
        yield path
