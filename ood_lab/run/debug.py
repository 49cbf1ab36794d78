"""``debug=true``: two batches of every set through the whole pipeline, in a place of its own."""

from __future__ import annotations

from pathlib import Path

from omegaconf import DictConfig, OmegaConf, open_dict

from ood_lab.scripts import CONF

BATCHES = 2
#: Folder of debug runs, below ``paths.outputs``.
FOLDER = "debug"


def shortened(cfg: DictConfig) -> DictConfig:
    """The configuration of a debug run: two batches of every set, one epoch, a log on disk.

    Its folder lies apart from real runs, is emptied at every start and never gets a ``DONE``.
    """
    cfg = cfg.copy()
    with open_dict(cfg):
        cfg.paths.outputs = str(Path(cfg.paths.outputs) / FOLDER)
        cfg.force = True
        cfg.logger = OmegaConf.load(CONF / "logger" / "csv.yaml")
        cfg.trainer.max_epochs = 1
        cfg.data.max_batches = BATCHES
        if "max_batches" in cfg.task:
            cfg.task.max_batches = BATCHES
        if "identify" in cfg.data:
            cfg.data.identify = "stat"  # the content of all files takes longer than the rest
        if "expected_id_acc" in cfg.model:
            cfg.model.expected_id_acc = None
    return cfg


def keep_apart(cfg: DictConfig, folder: Path) -> None:
    """Puts feature banks and the cache into the run folder, so that nothing is found or left."""
    cfg.paths.features, cfg.paths.cache = str(folder / "features"), str(folder / "cache")
