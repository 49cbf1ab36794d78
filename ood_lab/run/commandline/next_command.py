"""The command that a run recommends next: what it found, used on new images."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ood_lab.detectors.deployment.calibration import DEFAULT_ALPHA, least_held_out
from ood_lab.run.commandline.composition import command_line, running_overrides
from ood_lab.run.commandline.overrides import key_of
from ood_lab.scripts import command

#: Overrides that a prediction does not read; those of OOD datasets name images that it does not
#: need, and synthetic ones are made of ID test images. Experiments that bring a task of their own
#: set options of that task.
_OF_SCORING = re.compile(
    r"(experiment=(shift_report|vessels_lvlm|vessels_grid)|task|detector|detector_table|metrics|report_by"
    r"|tuning|lvlm|logger|force|synthetic_ood|trainer\.(max|min)_\w+)\b"
    r"|data[./](ood|ood_val|csid|levels|shift_order|ood_groups|full_spectrum)\b"
)
_OF_GRADED = re.compile(r"(synthetic_ood|name|force)\b")
#: Overrides that weights of this run do not bring along.
_NOT_OF_RUN = re.compile(r"(paths\.\w+|debug)=")


def next_command(
    settings: Mapping[str, Any], run: Path | None, detector: str | None, trains: bool, held_out: int
) -> tuple[str, str] | None:
    """The purpose of the command, and the command, which runs as printed.

    Args:
        settings: of the running job.
        run: folder of the training, if its weights are there; else the running command line says
            what the network is. Of an ensemble its first network is taken.
        detector: that is recommended; None = there is none.
        trains: the job trains the network on ID train, without the classes that are held out.
        held_out: number of ID images that a threshold can be set on.

    Returns:
        None without a detector or images for its threshold, and where a network without some of
        the classes was not trained by this job.
    """
    own = running_overrides()
    if detector is None or not held_out:
        return None
    if (settings.get("synthetic_ood") or {}).get("kind") in ("held_out_classes", "both"):
        if not trains:
            return None
        kept = [o for o in own if not _OF_GRADED.match(o.lstrip("+~"))]
        return "train on all classes before you use it", command_line("train", kept)
    folder = _images(settings)
    of_detector = re.compile(rf"(detector\.{re.escape(detector)}\.|detector_preset=)")
    kept = [o for o in own if of_detector.match(o.lstrip("+~"))]
    kept += [f"detector=[{detector}]", "task=predict", f"task.images={folder}"]
    if held_out < least_held_out(DEFAULT_ALPHA):
        kept.append(f"task.alpha={math.ceil(100 / (held_out + 1)) / 100:g}")
    members = settings.get("ensemble")
    if run is None and members:  # a prediction reads one network
        run = members[0]
    if run is not None:
        network = [f"ckpt={run}", *(o for o in own if _NOT_OF_RUN.match(o.lstrip("+~")))]
    else:
        network = [o for o in own if not _OF_SCORING.match(o.lstrip("+~"))]
        if any(key_of(o) == "ckpt" for o in network):  # data and network are those of its run
            network = [o for o in network if key_of(o) != "experiment"]
    one = " with the first network, without the ensemble" if members else ""
    purpose = f"score new images{one} (replace {folder} by your folder)"
    return purpose, command_line("eval", [*network, *kept])


def head_command(model: Mapping[str, Any]) -> str:
    """The command that gives a network a head for the classes of the data."""
    own = [o for o in running_overrides() if key_of(o) != "model.head"]
    if "head" in model:
        return command_line("eval", [*own, "model.head=linear"])
    return command_line("train", [o for o in own if key_of(o) not in ("task", "ckpt")])


def _images(settings: Mapping[str, Any]) -> str:
    """A folder of images that is there, so that the command runs: that of an OOD dataset."""
    given = (settings.get("data") or {}).get("ood") or {}
    sources = given.values() if isinstance(given, Mapping) else ()
    folders = [str(place) for place in sources if isinstance(place, str) and Path(place).is_dir()]
    return folders[0] if folders else "DIR"


def later(run: Path | None) -> str:
    """How the detectors are scored with an OOD set; ``run`` may hold trained weights."""
    if run and (run / "checkpoints").is_dir():
        ckpt = shlex.quote(f"ckpt={run}")
        remedy = (
            f"{command('eval')} {ckpt} data.ood.NAME=DIR scores them with these weights; "
            "synthetic_ood=corruptions instead makes an OOD set of ID test"
        )
    else:
        remedy = "give this command line data.ood.NAME=DIR, or synthetic_ood=corruptions"
    return f"there is no OOD set, so no detector was scored: {remedy}"
