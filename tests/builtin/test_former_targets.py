"""Runs that were made before the builtin images had a package of their own."""

import hashlib
import json

import pytest
from hydra.utils import get_object

from ood_lab.common.files import _MOVED, read_config
from ood_lab.run.job.run_identity import FORMER, config_hash

CLASSES = {
    "ood_lab.data.vessels_module.": "VesselsDataModule",
    "ood_lab.data.scenes_module.": "ScenesDataModule",
    "ood_lab.data.vessels.": "LightAugment",
    "ood_lab.lvlm.annotations.scenes.": "ScenesAnnotations",
    "ood_lab.lvlm.ode.generators.renderer.": "SceneRenderer",
    "ood_lab.builtin.scenes.module.": "ScenesDataModule",
    "ood_lab.builtin.vessels.module.": "VesselsDataModule",
    "ood_lab.builtin.vlm.chats.": "FileOrSceneChats",
    "ood_lab.data.bronzes_module.": "BronzesDataModule",
    "ood_lab.data.folder_module.": "FolderDataModule",
    "ood_lab.data.segmenters.": "Rembg",
    "ood_lab.lvlm.benchmarks.ode.generators.": "endpoint.EndpointGenerator",
    "ood_lab.lvlm.benchmarks.ode.images.image_filter.": "Filter",
    "ood_lab.lvlm.benchmarks.ode.construction.amber_concepts.": "AmberConcepts",
    "ood_lab.lvlm.benchmarks.ode.construction.": "criteria.LongTail",
    "ood_lab.lvlm.benchmarks.ode.tendencies.": "Clustering",
    "ood_lab.lvlm.benchmarks.ode.tuning_data.": "Tuning",
}


@pytest.mark.parametrize("old", _MOVED)
def test_their_configurations_name_what_is_there_now(old, tmp_path):
    name = f"{old}{CLASSES.get(old, '')}"
    (tmp_path / "config.yaml").write_text(f"data:\n  _target_: {name}\npaths: {{}}\n")
    assert callable(get_object(read_config(tmp_path)["data"]["_target_"]))


@pytest.mark.parametrize("now", FORMER)
def test_a_move_changes_no_hash(now):
    former = json.dumps({"a": {"_target_": f"{FORMER[now]}x"}}).encode()
    assert config_hash({"a": {"_target_": f"{now}x"}}) == hashlib.sha256(former).hexdigest()[:10]
    assert _MOVED.get(FORMER[now], now) == now or now.startswith(_MOVED[FORMER[now]])
