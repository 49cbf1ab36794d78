"""Images of questions that cannot be decoded are found before the first request."""

from __future__ import annotations

import os
from pathlib import Path

from PIL import Image

from ood_lab.common.errors import UserError
from ood_lab.common.files import StrPath
from ood_lab.common.unicode_names import remark
from ood_lab.data.sources.file_facts import Facts, file_facts
from ood_lab.lvlm.questions.question_files import Questions

_SHARE = 8  # of each side: a JPEG that is decoded so small is read to its end all the same


def check_whole(questions: Questions, source: Path, cache_dir: StrPath | None = None) -> None:
    """Decodes every image once; those known to be whole and unchanged are not read again.

    Args:
        questions: of any benchmark.
        source: folder from which the paths of their images start.
        cache_dir: remembers which files are whole; None = nothing is remembered.

    Raises:
        UserError: images are missing, truncated or none, with the first of them and why.
    """
    images = sorted({image for question in questions for image in question.images})
    if not images:
        return
    facts = file_facts(
        [os.path.abspath(source / image) for image in images], _damage, "decoding images", cache_dir
    )
    damaged = facts[facts["error"] != ""]
    if len(damaged):
        first = damaged.iloc[0]
        raise UserError(
            f"{len(damaged):,} of the {len(images):,} images of the questions cannot be read, "
            f"'{first['path']}' for one ({first['error']}): replace them, or leave their questions "
            f"out{remark(first['path'])}"
        )


def _damage(path: str) -> Facts:
    try:
        with Image.open(path) as image:
            image.draft("RGB", (image.width // _SHARE, image.height // _SHARE))
            image.load()
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        reason = "not an image" if "cannot identify" in reason else reason
        return {"error": reason.splitlines()[0]}
    return {"error": ""}
