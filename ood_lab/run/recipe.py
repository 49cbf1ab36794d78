"""Which recipe a run took: the file that says what its preset means for its method.

The defaults list of ``conf/base.yaml`` adds ``recipe/<group>/<method>_<preset>.yaml`` where there
is such a file. Where there is none, the method's own file holds all there is to say.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from ood_lab.run import checkpoints
from ood_lab.scripts import CONF


def recipe_of(cfg: DictConfig, overrides: Sequence[str]) -> str | None:
    """The recipe of the running job, in words; None for an evaluation of a method without any.

    Args:
        cfg: the configuration, with what is taken over from ``ckpt``.
        overrides: of the command line.
    """
    keys = {override.lstrip("+~").split("=", 1)[0] for override in overrides}
    if cfg.ckpt and checkpoints.run_of(Path(cfg.ckpt)) and "model" not in keys:
        return f"that of {cfg.ckpt}"
    hydra = HydraConfig.get()
    group = "prompt" if hydra.runtime.choices.get("prompt") else "model"
    method = hydra.runtime.choices.get(group)
    named = [f"{method}_{path.stem}" for path in (CONF / "preset").glob("*.yaml")]
    files = [name for name in named if (CONF / "recipe" / group / f"{name}.yaml").exists()]
    if not files and hydra.job.config_name != "train":
        return None
    own = f"{method}_{cfg.preset}"
    taken = f"recipe/{group}/{own}.yaml" if own in files else f"{group}/{method}.yaml as it is"
    return f"conf/{taken} (preset={cfg.preset})"
