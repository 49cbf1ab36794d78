"""Writes rendered scenes as COCO instances: images, and one JSON file about them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ood_lab.builtin.scenes.dataset import RenderedScenes
from ood_lab.builtin.scenes.places import level_of
from ood_lab.builtin.scenes.rendering import Visible, visible
from ood_lab.builtin.scenes.scene import RENDERER, Scene
from ood_lab.builtin.scenes.things import THINGS
from ood_lab.common.errors import reported_as
from ood_lab.common.files import StrPath, write_text
from ood_lab.common.installed_packages import need

#: Name of the JSON file, and of the folder of images beside it.
INSTANCES, IMAGES = "instances.json", "images"


def write_coco(data: RenderedScenes, folder: StrPath) -> Path:
    """Writes ``instances.json`` and ``images/<row>.png``; a folder that holds them is kept.

    The format is that of COCO's instances: categories are all things that can be drawn, numbered
    from 1 in the order of ``THINGS``; ``bbox``, ``area`` and ``segmentation`` (compressed RLE) are
    those of the pixels that can be seen. Beyond it, an annotation has ``attributes`` (those that
    its picture shows) and ``semantic_level`` (in its place), and an image ``semantic_level``,
    ``covariate_level`` and ``attributes`` (``place``, ``style``); ``info.identity`` is that of the
    data set.

    The JSON file appears when everything is written.

    Args:
        data: the scenes.
        folder: made if missing.

    Returns:
        The JSON file.

    Raises:
        UserError: pycocotools is missing, or the folder cannot be written.
    """
    need("pycocotools", "lvlm", "writing COCO files")
    file = Path(folder) / INSTANCES
    if not file.exists():
        with reported_as(f"scenes '{folder}' cannot be written: {{reason}}", OSError):
            (file.parent / IMAGES).mkdir(parents=True, exist_ok=True)
            _write(data, file)
    return file


def _write(data: RenderedScenes, file: Path) -> None:
    numbers = {name: number for number, name in enumerate(THINGS, 1)}
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for index in range(len(data)):
        scene = data.scene(index)
        name = f"{index:06d}.png"
        picture = Image.fromarray(data.paint(index, scene))
        picture.save(file.parent / IMAGES / name, compress_level=1)
        images.append(_image(index + 1, name, scene))
        for seen in visible(scene):
            entry = _annotation(scene, seen, numbers[seen.item.look.thing])
            annotations.append({"id": len(annotations) + 1, "image_id": index + 1, **entry})
    document = {
        "info": {
            "description": f"rendered scenes '{data.name}', seed {data.seed}",
            "version": RENDERER,
            "identity": data.identity,
        },
        "licenses": [{"id": 1, "name": "Apache-2.0", "url": ""}],
        "images": images,
        "annotations": annotations,
        "categories": [
            {"id": number, "name": name, "supercategory": THINGS[name].kind}
            for name, number in numbers.items()
        ],
    }
    write_text(json.dumps(document), file)


def _image(number: int, name: str, scene: Scene) -> dict[str, Any]:
    return {
        "id": number,
        "file_name": name,
        "width": scene.size,
        "height": scene.size,
        "license": 1,
        "semantic_level": scene.semantic_level,
        "covariate_level": scene.covariate_level,
        "attributes": {"place": scene.place, "style": scene.style},
    }


def _annotation(scene: Scene, seen: Visible, category: int) -> dict[str, Any]:
    from pycocotools import mask as rle

    code = rle.encode(np.asfortranarray(seen.mask, np.uint8))
    return {
        "category_id": category,
        "bbox": list(seen.box),
        "area": seen.area,
        "iscrowd": 0,
        "segmentation": {"size": list(code["size"]), "counts": code["counts"].decode("ascii")},
        "attributes": scene.attributes(seen.item),
        "semantic_level": level_of(seen.item.look.thing, scene.place),
    }
