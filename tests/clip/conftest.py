import clip_towers
import open_clip
import pytest


@pytest.fixture(scope="session", autouse=True)
def _tower_configs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("towers")
    clip_towers.write(folder)
    open_clip.add_model_config(folder)


@pytest.fixture(scope="session")
def tiny():
    from ood_lab.clip import load_clip

    return load_clip("tiny")
