"""The examples of a fine-tuning: files of conversations, or builtin scenes."""

from __future__ import annotations

from typing import Annotated, Any

from annotated_types import Ge, Le

from ood_lab.builtin.vlm.scene_conversations import SceneChats
from ood_lab.common.errors import UserError
from ood_lab.lvlm.training.conversation_files import ChatFile
from ood_lab.lvlm.training.example_batches import Chats, Count


class FileOrSceneChats(Chats):
    """Conversations of files; builtin scenes where no file is given.

    Args:
        train: file of conversations, see :class:`ChatFile`; None = builtin scenes.
        val: another such file; None = builtin scenes, or no validation where ``train`` is a file.
        scenes: number of scenes to train on.
        val_scenes: number of scenes to validate on.
        breaks: share of scenes that break the prior of their place.
        questions: about each scene, others in every epoch.
        seed: of scenes, questions and order.
        options: see :class:`Chats`.

    Raises:
        UserError: ``val`` is a file and ``train`` is none.
    """

    def __init__(
        self,
        train: str | None = None,
        val: str | None = None,
        scenes: Count = 24000,
        val_scenes: Count = 600,
        breaks: Annotated[float, Ge(0.0), Le(1.0)] = 0.3,
        questions: Count = 6,
        seed: Annotated[int, Ge(0)] = 0,
        **options: Any,
    ) -> None:
        if train is not None:
            file = None if val is None else ChatFile(val)
            super().__init__(ChatFile(train), file, seed=seed, **options)
            return
        if val is not None:
            raise UserError("model.chats.val is a file, so model.chats.train must be one, too")
        super().__init__(
            SceneChats("train", scenes, seed, breaks=breaks, questions=questions),
            SceneChats("val", val_scenes, seed, breaks=breaks),
            seed=seed,
            **options,
        )
