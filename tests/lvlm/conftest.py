"""Images that several tests of vision-language models ask about."""

import pytest
from small_concepts import SHARED

from ood_lab.builtin.scenes import ScenesDataset
from ood_lab.lvlm.benchmarks.amber.concepts import AmberConcepts


@pytest.fixture(scope="session")
def scene_images(tmp_path_factory):
    """Folder of builtin scenes, ``0.png`` to ``11.png``."""
    folder = tmp_path_factory.mktemp("scenes")
    scenes = ScenesDataset("test", 12, 0)
    for index in range(len(scenes)):
        scenes.load_image(index).save(folder / f"{index}.png")
    return folder


@pytest.fixture(scope="session")
def amber():
    """The published data is read once."""
    return AmberConcepts(str(SHARED)).read()
