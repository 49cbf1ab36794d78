"""The command that a run recommends next: what it found, used on new images."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ood_lab.run.compose import as_typed, running_overrides
from ood_lab.scripts import command

#: Overrides that a prediction does not read; those of OOD datasets name images that it does not
#: need, and synthetic ones are made of ID test images.
_OF_SCORING = re.compile(
    r"(experiment=(how_far|vessels_lvlm)|task|detector|detector_table|metrics|shift|tuning|lvlm|clip|logger|force"
    r"|graded)\b|data\.(ood|csid|levels|shift_order|ood_groups)\b"
)
_OF_GRADED = re.compile(r"(graded|name|force)\b")


def next_command(
    settings: Mapping[str, Any], run: Path | None, detector: str | None, trains: bool
) -> tuple[str, str] | None:
    """What the command is for, and the command, which runs as it is printed.

    Args:
        settings: of the running job.
        run: folder of the training, if its weights are there; else the running command line says
            what the network is.
        detector: that is recommended; None = there is none.
        trains: the job trains the network on ID train, without the classes that are held out.

    Returns:
        None without a detector, and where a network without some of the classes was not trained by
        this job.
    """
    if detector is None:
        return None
    own = running_overrides()
    if (settings.get("graded") or {}).get("kind") in ("classes", "both"):
        if not trains:
            return None
        kept = [as_typed(o) for o in own if not _OF_GRADED.match(o.lstrip("+~"))]
        return "train on all classes before you use it", " ".join([command("train"), *kept])
    folder = _images(settings)
    more = [f"detector=[{detector}]", "task=predict", f"task.images={folder}"]
    if run is not None:
        words = [shlex.quote(f"ckpt={run}")]
    else:
        words = [as_typed(o) for o in own if not _OF_SCORING.match(o.lstrip("+~"))]
    purpose = f"score new images (replace {folder} by your folder)"
    return purpose, " ".join([command("eval"), *words, *map(shlex.quote, more)])


def _images(settings: Mapping[str, Any]) -> str:
    """A folder of images that is there, so that the command runs: that of an OOD dataset."""
    given = (settings.get("data") or {}).get("ood") or {}
    sources = given.values() if isinstance(given, Mapping) else ()
    folders = [str(place) for place in sources if isinstance(place, str) and Path(place).is_dir()]
    return folders[0] if folders else "DIR"
