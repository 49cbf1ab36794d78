import sys
from pathlib import Path

import open_clip
import pytest

sys.path.append(str(Path(__file__).parents[1] / "clip"))


@pytest.fixture(scope="session", autouse=True)
def _tower_configs(tmp_path_factory):
    import clip_towers

    folder = tmp_path_factory.mktemp("towers")
    clip_towers.write(folder)
    open_clip.add_model_config(folder)


@pytest.fixture(scope="session")
def tiny():
    from ood_lab.clip import load_clip

    return load_clip("tiny")
