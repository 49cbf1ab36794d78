"""Measured levels of shift for the images of a question set."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from PIL import Image

from ood_lab.common.errors import UserError
from ood_lab.common.files import StrPath
from ood_lab.common.unicode_names import remark
from ood_lab.data.sources.file_facts import Facts, content_hashes, file_facts
from ood_lab.data.sources.image_files import reason
from ood_lab.data.sources.level_tables import read_levels
from ood_lab.lvlm.questions.question_files import Questions
from ood_lab.schema.image_columns import LEVELS
from ood_lab.schema.run_record import RunRecord


def with_levels(
    questions: Questions, source: Path, path: str | None, cache_dir: StrPath | None = None
) -> Questions:
    """The questions with the levels of ``task=shift_levels``, in place of any known ones.

    An image is found by its content (``sha256`` of the file), wherever it is and whatever it is
    called. An image of which the division knows no content is found by its absolute path.

    Args:
        questions: of any benchmark. Those without an image stay unchanged.
        source: folder from which the paths of their images start.
        path: ``levels.parquet`` of a division; None = the questions stay unchanged.
        cache_dir: remembers the sha256 of unchanged files; None = nothing is remembered.

    Raises:
        UserError: the file is not one of levels, it has two levels for one image, or an image of a
            question is not among its images, which includes another image of the same name.
    """
    if path is None:
        return list(questions)
    table = read_levels(path, "task.levels")
    hashes = table["sha256"].fillna("") if "sha256" in table else [""] * len(table)
    keys = [item or os.path.abspath(name) for item, name in zip(hashes, table["path"], strict=True)]
    known = table.assign(key=keys).drop_duplicates(["key", *LEVELS]).set_index("key")
    if (twice := known.index.duplicated()).any():
        name = known.loc[twice, "path"].iloc[0]
        raise UserError(f"task.levels={path} has two different levels for the image '{name}'")
    levels: Mapping[Any, Mapping[Any, int]] = known[[*LEVELS]].astype(int).to_dict("index")
    images = sorted({question.image for question in questions if question.image is not None})
    files = [os.path.abspath(source / image) for image in images]
    keys_of_images = zip(images, files, content_hashes(files, cache_dir), strict=True)
    of_image: dict[str | None, Mapping[Any, int]] = {None: {}} | {
        image: levels.get(content) or levels.get(file, {})
        for image, file, content in keys_of_images
    }
    if missing := [image for image in images if not of_image[image]]:
        raise UserError(
            f"task.levels={path} has no level for {len(missing):,} of the {len(images):,} images "
            f"of the questions, the first of them '{missing[0]}': "
            "divide a pool that holds these very images"
        )
    return [replace(q, meta={**q.meta, **of_image[q.image]}) for q in questions]


_SHARE = 8  # of each side: a JPEG that is decoded so small is read to its end all the same


def check_whole(questions: Questions, source: Path, cache_dir: StrPath | None) -> None:
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
    # Broken files make PIL's readers raise almost anything.
    except Exception as error:
        return {"error": reason(error, path)}
    return {"error": ""}


def with_images_found(questions: Questions, folder: Path) -> Questions:
    """The questions, with the paths of images that lie elsewhere than when they were written.

    An image that is not at its path is looked for where it would be if it had been moved together
    with the folder, of which the record says where it was. What is not there either keeps its
    path. Answers belong to the content of images, and are found again.

    Args:
        questions: of a file in the folder.
        folder: of the run.
    """
    written = RunRecord.read(folder, missing_ok=True).questions
    before = Path(written.file if written else "").parent
    if not before.is_absolute() or before == folder.absolute():
        return list(questions)

    @cache
    def found(image: str) -> str:
        if not Path(image).is_absolute() or Path(image).exists():
            return image
        moved = os.path.normpath(folder.absolute() / os.path.relpath(image, before))
        return moved if os.path.exists(moved) else image

    return [
        q
        if q.image is None
        else replace(q, image=found(q.image), more_images=[*map(found, q.more_images)])
        for q in questions
    ]
