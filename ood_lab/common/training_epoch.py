"""The epoch that a training is about to begin."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lightning.pytorch import Trainer


def coming_epoch(trainer: Trainer | None) -> int:
    """The number of the epoch whose images are about to be drawn; 0 without a Trainer.

    Not ``current_epoch``: when a training is resumed, that is still one behind as the processes
    that load images fetch their first ones. A schedule that asks for the number of steps lets them
    begin even before Lightning has taken its counts from the checkpoint, which is loaded by then.
    """
    if trainer is None:
        return 0
    loaded = trainer._checkpoint_connector._loaded_checkpoint  # empty once it is restored
    if loaded and "loops" in loaded:
        return int(loaded["loops"]["fit_loop"]["epoch_progress"]["current"]["processed"])
    return trainer.fit_loop.epoch_progress.current.processed  # type: ignore[attr-defined]
