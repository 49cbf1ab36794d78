"""Lists of pictures: those of another run, and the annotations that ODE publishes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from ood_lab.common.errors import UserError
from ood_lab.lvlm.annotations.annotation_table import read_json, read_json_lines
from ood_lab.lvlm.concepts.concepts import Attribute, Kind
from ood_lab.lvlm.image_generation.pictures import AnnotatedPicture, AnnotatedPictures


def read_pictures(path: Path) -> AnnotatedPictures:
    """Reads ODE's own annotations, a JSON list, or the pictures of another run, one a line.

    Raises:
        UserError: the file is missing or neither of the two.
    """
    name = "a list of pictures"
    if path.is_file() and path.read_bytes().lstrip().startswith(b"["):
        return [item.picture for item in read_json(path, list[_Published], name)]
    return read_json_lines(path, AnnotatedPicture, name)


def located_pictures(path: Path, images: str | None) -> AnnotatedPictures:
    """The pictures of :func:`read_pictures` with the absolute paths of their images.

    Args:
        path: of the list.
        images: folder that it names them in; None = its own.

    Raises:
        UserError: see there; or an image is missing.
    """
    results, folder = read_pictures(path), Path(images or path.parent).absolute()
    if missing := [item.file for item in results if not (folder / item.file).is_file()]:
        raise UserError(
            f"{path} names '{missing[0]}', which is not in '{folder}': give the folder of "
            "the images, task.images=DIR"
        )
    return [replace(item, file=str(folder / item.file)) for item in results]


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
