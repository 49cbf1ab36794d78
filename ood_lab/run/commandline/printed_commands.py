"""Commands as a user types them: to repeat a run, and what it recommends next."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf

from ood_lab.common.arguments import Settings
from ood_lab.run.commandline.composition import plain, running_overrides
from ood_lab.run.commandline.overrides import key_of
from ood_lab.scripts import command, conf_files, conf_folders

#: What a prediction takes from the command line; data and network are those of the run.
_KEPT = ("paths", "debug", "detector_device", "trainer.accelerator", "trainer.precision")


def command_to_repeat() -> str:
    """The command that repeats the running job; it omits output paths and loggers."""
    places = ("paths.", "logger=")
    kept = [override for override in running_overrides() if not override.startswith(places)]
    return command_line(str(HydraConfig.get().job.config_name), kept)


def command_line(script: str, overrides: Sequence[str]) -> str:
    """What a user types for one job of ``train`` or ``eval``, with the folder of own YAML files."""
    flags = [word for folder in conf_folders()[1:] for word in ("--config-dir", str(folder))]
    return " ".join([command(script), *map(shell_word, [*flags, *overrides])])


def shell_word(word: str) -> str:
    """Quotes a word for a shell, in double quotes if it holds single ones, as Hydra's lists do.

    The signs ``=`` of a path are written without a backslash.
    """
    word = word.replace(r"\=", "=")
    return f'"{word}"' if "'" in word and not set(word) & set('"$`\\!') else shlex.quote(word)


def next_command(
    settings: Settings,
    run: Path,
    detector: str | None,
    trains: bool,
    held_out: int,
    tuned: Settings,
) -> tuple[str, str] | None:
    """The purpose of the command, and the command, which runs as printed.

    Args:
        settings: of the running job.
        run: its folder, which names its data and its network.
        detector: that is recommended, by the key of its YAML; None = there is none.
        trains: the job trains the network on ID train, without the classes that are held out.
        held_out: number of ID images that a threshold can be set on.
        tuned: settings of the detector that a tuning has chosen.

    Returns:
        None without a detector or images for its threshold, and where a network without some of
        the classes was not trained by this job.
    """
    from ood_lab.detectors.deployment.calibration import DEFAULT_ALPHA, least_held_out

    overrides = running_overrides()
    if detector is None or not held_out:
        return None
    if (settings.get("synthetic_ood") or {}).get("kind") in ("held_out_classes", "both"):
        if not trains:
            return None
        held_out_classes = ("synthetic_ood", "name", "force", "tuning")
        line = command_line("train", _without(overrides, held_out_classes))
        return "train on all classes before you use it", line
    folder = _images(settings)
    kept = _of(overrides, _KEPT)
    files = {file.stem: file for file in conf_files("detector")}
    if detector in files:  # however its settings were chosen: typed, by an experiment, or tuned
        preset = settings.get("detector_preset", "auto")
        kept += [] if preset == "auto" else [f"detector_preset={preset}"]
        node = OmegaConf.merge({"detector_preset": preset}, OmegaConf.load(files[detector]))
        shipped = plain(node)["detector"][detector]  # type: ignore[arg-type]
        chosen = settings.get("detector", {}).get(detector, {}) | tuned
        differing = {k: value for k, value in chosen.items() if value != shipped.get(k)}
        texts = {k: v if isinstance(v, str) else json.dumps(v) for k, v in differing.items()}
        kept += [f"detector.{detector}.{k}={text}" for k, text in texts.items()]
        choice = [f"detector=[{detector}]"]
    else:  # one that is not chosen by its name comes with those that were chosen with it
        kept += _of(overrides, ("detector", "detector_preset"))
        choice = []
    kept += [*choice, "task=predict", f"task.images={folder}"]
    if held_out < least_held_out(DEFAULT_ALPHA):
        kept.append(f"task.alpha={math.ceil(100 / (held_out + 1)) / 100:g}")
    purpose = f"score new images (replace {folder} by your folder)"
    return purpose, command_line("eval", [f"ckpt={run}", *kept])


def _of(overrides: Sequence[str], keys: Sequence[str]) -> list[str]:
    """The overrides of these keys, of keys below them, and of groups of these names."""
    places = [tuple(key.split(".")) for key in keys]
    parts = {o: tuple(key_of(o).replace("/", ".").split(".")) for o in overrides}
    return [o for o, part in parts.items() if any(part[: len(place)] == place for place in places)]


def _without(overrides: Sequence[str], keys: Sequence[str]) -> list[str]:
    return [override for override in overrides if override not in _of(overrides, keys)]


def head_command(model: Settings) -> str:
    """The command that gives a network a head for the classes of the data."""
    overrides = _without(running_overrides(), ("model.head",))
    if "head" in model:
        return command_line("eval", [*overrides, "model.head=linear"])
    return command_line("train", _without(overrides, ("task", "ckpt")))


def _images(settings: Settings) -> str:
    """A folder of images that is there, so that the command runs: that of an OOD dataset."""
    sets = (settings.get("data") or {}).get("ood") or {}
    sources = sets.values() if isinstance(sets, Mapping) else ()
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
