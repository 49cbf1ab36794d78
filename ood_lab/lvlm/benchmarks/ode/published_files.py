"""Pictures and questions in the format of the files that ODE publishes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ood_lab.common.errors import UserError
from ood_lab.common.files import write_text
from ood_lab.lvlm.annotations.annotation_table import read_json, read_json_lines
from ood_lab.lvlm.benchmarks.ode.queries import RELEASED_CAPTION, queries_of
from ood_lab.lvlm.concepts.concepts import Attribute, Kind
from ood_lab.lvlm.image_generation.pictures import AnnotatedPicture
from ood_lab.lvlm.questions.question_files import ACTION, EXISTENCE, NUMBER, STATE

#: First ids of the published lists; the ranges overlap.
FIRST_IDS = {"generative": 1, "existence": 536, "attribute": 2912}
Rows = list[dict[str, Any]]


def write_published(pictures: Sequence[AnnotatedPicture], images: Path, folder: Path) -> None:
    """Writes ``annotations_updated.json`` and the three lists of queries.

    Args:
        pictures: all of them.
        images: folder that the lists name the images in; one that is elsewhere keeps its path.
        folder: is made.
    """
    pictures = [replace(item, file=_named(Path(item.file), images)) for item in pictures]
    files = {"annotations_updated.json": published_rows(pictures), **published_queries(pictures)}
    for name, rows in files.items():
        write_text(json.dumps(rows, indent=4, ensure_ascii=False) + "\n", folder / name)


def _named(file: Path, images: Path) -> str:
    return (file.relative_to(images) if file.is_relative_to(images) else file).as_posix()


def published_rows(pictures: Sequence[AnnotatedPicture]) -> Rows:
    """ODE's own annotations, one row per picture."""
    rows = []
    for number, item in enumerate(pictures, 1):
        pairs = (*item.states, *item.actions)
        rows.append(
            {
                "id": number,
                **_about(item),
                "info_type": item.kind,
                "truth": list(item.truth[:2]),
                "truth_attr": ["" if pair is None else pair.true for pair in pairs],
                "hallu_attr": ["" if pair is None else pair.false for pair in pairs],
                "hallu": list(item.hallu),
            }
        )
    return rows


def published_queries(pictures: Sequence[AnnotatedPicture]) -> dict[str, Rows]:
    """The three lists of queries by file name."""
    lists: dict[str, Rows] = {name: [] for name in FIRST_IDS}
    for item in pictures:
        lists["generative"].append({**_about(item), "generative": RELEASED_CAPTION})
    for tasks in ((EXISTENCE,), (STATE, ACTION), (NUMBER,)):
        for item in pictures:
            for query in queries_of(item, released=True):
                if query.task in tasks:
                    known = {"discriminative": query.text, "dis_truth": query.answer}
                    kind = {"dis-type": f"dis-{query.task.replace('_', '-')}"}
                    sort = query.task.split("_")[0]
                    more = kind if sort == "attribute" else {}
                    lists[sort].append({**_about(item), **more, **known})
    return {
        f"queries-{'' if name == 'generative' else 'discriminative_'}{name}.json": [
            {"id": FIRST_IDS[name] + place, **row} for place, row in enumerate(rows)
        ]
        for name, rows in lists.items()
    }


def _about(picture: AnnotatedPicture) -> dict[str, str]:
    return {"type": picture.criterion, "image": picture.file}


def read_pictures(path: Path) -> list[AnnotatedPicture]:
    """Reads ODE's own annotations, a JSON list, or the pictures of another run, one a line.

    Raises:
        UserError: the file is missing or neither of the two.
    """
    name = "a list of pictures"
    if path.is_file() and path.read_bytes().lstrip().startswith(b"["):
        return [item.picture for item in read_json(path, list[_Published], name)]
    return read_json_lines(path, AnnotatedPicture, name)


def located_pictures(path: Path, images: Path) -> list[AnnotatedPicture]:
    """The pictures of :func:`read_pictures` with the absolute paths of their images.

    Args:
        path: of the list.
        images: folder that it names them in.

    Raises:
        UserError: see there; or an image is missing.
    """
    results = read_pictures(path)
    if missing := [item.file for item in results if not (images / item.file).is_file()]:
        raise UserError(
            f"{path} names '{missing[0]}', which is not in '{images}': give the folder of "
            "the images, task.images=DIR"
        )
    return [replace(item, file=str(images / item.file)) for item in results]


@dataclass(frozen=True)
class _Published:
    """A row of ODE's own annotations; its attributes are the states of both, then the actions."""

    image: str
    type: str
    info_type: Kind
    truth: tuple[str, ...]
    truth_attr: tuple[str, str, str, str]
    hallu_attr: tuple[str, str, str, str]
    hallu: tuple[str, ...]

    @property
    def picture(self) -> AnnotatedPicture:
        pairs = zip(self.truth_attr, self.hallu_attr, strict=True)
        first, second, *actions = [Attribute(a, b) if a else None for a, b in pairs]
        return AnnotatedPicture(
            self.image,
            self.type,
            self.info_type,
            self.truth,
            (first, second),
            (actions[0], actions[1]),
            self.hallu,
        )
