"""Checkpoints that ``ckpt=`` may name: a run folder, or a weights file."""

from __future__ import annotations

import logging
import os
import zipfile
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from omegaconf import DictConfig, OmegaConf, open_dict

from ood_lab.common.errors import UserError
from ood_lab.common.files import read_config
from ood_lab.common.grouping import grouped
from ood_lab.common.hints import missing_path
from ood_lab.run.building.nodes import target
from ood_lab.run.commandline.composition import composed_again, is_default, trains
from ood_lab.run.commandline.line_checks import advice, has
from ood_lab.run.commandline.overrides import key_of, parsed
from ood_lab.schema.finished_run import FinishedRun
from ood_lab.schema.run_record import RunRecord

if TYPE_CHECKING:
    from lightning import LightningModule, Trainer

log = logging.getLogger(__name__)
#: Groups that a job inherits from the run of ``ckpt``, unless the user chooses one of those listed.
INHERITED = {"data": ("data",), "model": ("model",), "synthetic_ood": ("data", "synthetic_ood")}
#: The same of an evaluation, which needs to know what was trained.
EVALUATED = INHERITED | {"loss": ("loss",)}
#: Characters of a file's name, on all file systems that are in use.
_LONGEST = 255


def folder(run: Path) -> Path:
    """The folder that holds a run's checkpoints."""
    return run / "checkpoints"


def weights_file(ckpt: Path) -> Path:
    """The weights file that ``ckpt`` stands for: the run's best checkpoint, or the file itself.

    Raises:
        UserError: nothing is there, or the run has no checkpoint.
    """
    if ckpt.is_file():
        _check_kind(ckpt)
        return ckpt
    if not ckpt.exists():
        raise UserError(f"ckpt={missing_path(ckpt)}")
    for name in ("best.ckpt", "last.ckpt"):
        if (folder(ckpt) / name).exists():
            return folder(ckpt) / name
    raise UserError(
        f"ckpt={ckpt} holds no checkpoints/best.ckpt: name a folder written by train.py "
        "(outputs/<name>/<hash>/seed=<s>) or a file of weights"
    )


def _check_kind(file: Path) -> None:
    """Raises :class:`UserError` if the first bytes show that this is not a weights file."""
    from ood_lab.models.weights_formats import foreign_format

    with file.open("rb") as stream:
        start = stream.read(2)
    # PyTorch writes zip archives, formerly pickles; a truncated file is reported when it is read.
    written = start in (b"", b"PK") or start[:1] == b"\x80"
    run = next((place for place in file.parents if (place / "config.yaml").is_file()), None)
    if (run is None or written) and (what := foreign_format(file)):
        raise UserError(f"ckpt={what}")
    if written or file.suffix in (".safetensors", ".json"):
        return
    remedy = "name a run folder, or a file of weights" if run is None else f"give ckpt={run}"
    raise UserError(f"ckpt={file} is not a PyTorch checkpoint: {remedy}")


def check_pretrained(cfg: DictConfig) -> None:
    """Raises :class:`UserError` where the weights of a folder or file are not to be taken."""
    if (path := cfg.model.get("path")) and not cfg.model.pretrained:
        raise UserError(
            f"model.pretrained=false: the weights of model.path={path} are always used; remove "
            "it, or train a network from scratch with model=timm or model=module"
        )


def check_weights(cfg: DictConfig) -> bool:
    """True if the weights come only from ``model``, whose head may have other classes.

    Raises:
        UserError: the configuration names no weights at all, or does not want those of its path.
    """
    check_pretrained(cfg)
    if cfg.ckpt:
        return False
    if not (cfg.model.pretrained or cfg.model.get("weights")):
        raise UserError(
            "this backbone has no weights: give ckpt=<run folder or file>, "
            "model.weights=FILE or model.pretrained=true, or train one with train.py"
        )
    return True


def load_best(module: LightningModule, run: Path) -> None:
    """Gives a module the weights of the best checkpoint of a run.

    Raises:
        UserError: see :func:`weights_file`.
    """
    import torch

    best = torch.load(weights_file(run), "cpu", weights_only=True)
    module.load_state_dict(best["state_dict"])


def run_of(ckpt: Path) -> Path | None:
    """The run folder that ``ckpt`` is or is in; None for a weights file from elsewhere."""
    if ckpt.is_dir():
        return ckpt
    run = ckpt.parent.parent
    inside = ckpt.parent.name == folder(run).name and (run / "config.yaml").exists()
    return run if inside else None


def trained_weights(ckpt: str, saved: DictConfig) -> str | None:
    """What ``ckpt`` stands for: itself, or where its run trained nothing, the weights of that run.

    Args:
        ckpt: a run folder, or a weights file.
        saved: the configuration of its run; None where ``model`` names the weights.
    """
    path = Path(ckpt)
    evaluation = path.is_dir() and not folder(path).exists()
    return saved.get("ckpt") if evaluation else ckpt


def is_run(path: str) -> bool:
    """True if ``path`` is a run, or a checkpoint of one, whose data can be taken over."""
    if not os.path.exists(path):
        return False
    run = run_of(Path(path))
    return run is not None and (run / "config.yaml").is_file()


def to_resume(run: Path) -> Path | None:
    """The checkpoint from which an interrupted training resumes; None if there is none.

    That is the last one. If it is damaged, the best one, which holds an earlier epoch.

    Raises:
        UserError: both are cut short.
    """
    last, best = (folder(run) / f"{name}.ckpt" for name in ("last", "best"))
    if not last.exists():
        return None
    whole = next(filter(zipfile.is_zipfile, (last, best)), None)
    if whole is None:
        raise UserError(
            f"the training cannot be resumed: {last} is cut short or damaged. Remove it and repeat "
            "the command, which trains again from the start"
        )
    if whole is best:
        log.warning("%s is cut short or damaged: the training resumes from %s", last, best)
    return whole


def val_accuracy(trainer: Trainer) -> float | None:
    """Validation accuracy of the epoch that was kept; None if another measure chose it."""
    from lightning.pytorch.callbacks import ModelCheckpoint

    kept = [c for c in trainer.checkpoint_callbacks if isinstance(c, ModelCheckpoint)]
    score = next((c.best_model_score for c in kept if c.monitor == "val/acc"), None)
    return None if score is None else float(score)


def best_runs(runs: Sequence[Path]) -> list[Path]:
    """All seeds of the configuration with the best validation accuracy, the mean over its seeds.

    The test set plays no part. The first of equals wins.

    Raises:
        UserError: a run does not state its validation accuracy.
    """
    accuracies = grouped((run.parent, _val_accuracy(run)) for run in runs)
    means = {place: fmean(values) for place, values in accuracies.items()}
    ranking = sorted(means, key=lambda place: means[place], reverse=True)
    shown = ", ".join(f"{place.parent.name} {means[place]:.1%}" for place in ranking)
    log.info("best by validation accuracy: %s (%s)", ranking[0], shown)
    return [run for run in runs if run.parent == ranking[0]]


def _val_accuracy(run: Path) -> float:
    value = FinishedRun(run).record.val_accuracy
    if value is None:
        raise UserError(
            f"{run}/manifest.json has no val_accuracy: only a training that keeps its best epoch "
            "by val/acc (callbacks=default) has one; force=true repeats it"
        )
    return value


def origin(ckpt: str | None, seed: int) -> str | None:
    """The part of a run's hash that ``ckpt`` contributes; its weights file is noted separately.

    A run folder of the same seed counts as ``<name>/<config hash>``, so that evaluations of the
    seeds of one training are the seeds of one evaluation.

    Raises:
        UserError: nothing is there, or the run has no checkpoint.
    """
    if not ckpt:
        return None
    run = Path(ckpt)
    weights_file(run)
    own = run.is_dir() and run.name == f"seed={seed}"
    return "/".join(run.absolute().parts[-3:-1]) if own else ckpt


def inherit(cfg: DictConfig, overrides: Sequence[str]) -> DictConfig:
    """Takes data and model over from the run of ``cfg.ckpt``, where the user set neither.

    An override inside a group (``data.batch_size=8``) is applied on top of the run's own group;
    choosing the group (``data=folder``, or an experiment that does) replaces it. The seed, with
    which the weights were trained, is taken over too; nothing is known of a weights file outside
    any run folder. The preset comes with the data, so that a method chosen here gets the recipe for
    these data. An evaluation stands for the network that it evaluated: ``model.weights`` or its own
    ``ckpt``.

    Raises:
        UserError: ``ckpt`` is a folder without weights or without a whole ``config.yaml``, or a
            debug run where this is none.
    """
    if cfg.ckpt and max(map(len, Path(cfg.ckpt).parts)) > _LONGEST:
        raise UserError(f"ckpt={cfg.ckpt}: no file has a name of more than {_LONGEST} characters")
    run = run_of(Path(cfg.ckpt)) if cfg.ckpt else None
    if run is None:
        return cfg
    ckpt = str(Path(cfg.ckpt))
    saved = OmegaConf.create(read_config(run))
    weights = trained_weights(ckpt, saved) if "model" in saved else ckpt
    if weights:
        weights_file(Path(weights))
    if saved.get("debug") and not cfg.debug:
        raise UserError(
            f"ckpt={run} is a debug run, trained on two batches: train it without debug=true, or "
            "add debug=true here"
        )
    keys = list(map(key_of, overrides))
    if not is_default("data"):  # an experiment brings its own, as a benchmark does
        keys.append("data")
    if not {"data", "preset"}.intersection(keys) and saved.get("preset", cfg.preset) != cfg.preset:
        cfg = composed_again([*overrides, f"preset={saved.preset}"])
    cfg = cfg.copy()
    with open_dict(cfg):
        for group, choices in (INHERITED if trains(cfg) else EVALUATED).items():
            if group in saved and not set(choices) & set(keys):
                cfg[group] = saved[group]
                _change(cfg, [o for o in overrides if o.lstrip("+").startswith(f"{group}.")])
        if "seed" not in keys:
            cfg.seed = saved.seed
        cfg.ckpt = weights
    if "loss" in keys and not trains(cfg) and target(cfg.loss) is not target(saved.get("loss")):
        raise UserError(f"ckpt={run} was trained with another loss: leave loss=... out")
    return cfg


def classes_of(ckpt: Path) -> list[str]:
    """The classes that a checkpoint's run was trained on; empty if they are not recorded."""
    run = run_of(ckpt)
    return [] if run is None else RunRecord.read(run, missing_ok=True).classes


def _change(cfg: DictConfig, overrides: Sequence[str]) -> None:
    """Applies overrides inside a group that was taken over.

    Raises:
        UserError: the group has no such key.
    """
    for override in overrides:
        key = key_of(override)
        # Deeper keys, such as `data.id.test`, are checked by the class of the data.
        free = override.startswith("+") and not override.startswith("++")
        plain = key.startswith("data.") and key.count(".") == 1
        if plain and not free and not has(cfg, key):
            raise UserError(f"unknown key '{key}'. {advice(key, cfg)}")
        OmegaConf.update(cfg, key, parsed(override).value(), merge=True, force_add=True)


def check_classes(ckpt: Path, classes: Sequence[str]) -> None:
    """Raises :class:`UserError` when the data's classes are not those the run was trained on."""
    trained = classes_of(ckpt)
    if trained and trained != list(classes):
        missing = sorted(set(trained) - set(classes)) or "none"
        new = sorted(set(classes) - set(trained)) or "none"
        raise UserError(
            f"the data has {len(classes)} classes, {ckpt} was trained on {len(trained)} "
            f"(missing: {missing}, new: {new}): the order and number of classes must agree"
        )
