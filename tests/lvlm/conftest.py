"""Images that several tests of vision-language models ask about."""

import pytest

from ood_lab.builtin.scenes import ScenesDataset


@pytest.fixture(scope="session")
def scene_images(tmp_path_factory):
    """Folder of builtin scenes, ``0.png`` to ``11.png``."""
    folder = tmp_path_factory.mktemp("scenes")
    scenes = ScenesDataset("test", 12, 0)
    for index in range(len(scenes)):
        scenes.load_image(index).save(folder / f"{index}.png")
    return folder
