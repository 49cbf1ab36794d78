"""Every YAML under conf/ composes, and every target accepts the keys it is given."""

import inspect
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from hydra.utils import get_object
from omegaconf import DictConfig, ListConfig, OmegaConf

from ood_lab.run.resolvers import register_resolvers

CONF = Path(__file__).parents[1] / "conf"
NO_GROUP = {CONF, CONF / "reference"}  # published numbers are data: tests/tasks/test_verify.py
FILES = sorted(p.relative_to(CONF) for p in CONF.rglob("*.yaml") if p.parent not in NO_GROUP)
PRIMARY = {"train", "eval"}
APPENDED = {"annotations"}  # groups of some tasks alone: they are in no primary defaults list
REQUIRED = {  # what the user has to fill in
    "annotations/cityscapes.yaml": ["annotations.root=DIR"],
    "annotations/coco.yaml": ["annotations.file=FILE", "annotations.images=DIR"],
    "annotations/lvis.yaml": ["annotations.file=FILE", "annotations.images=DIR"],
    "annotations/nuscenes.yaml": ["annotations.root=DIR"],
    "clip/open_clip.yaml": ["clip.name=ViT-B-16"],
    "experiment/is_ood.yaml": ["imagenet_1k=DIR", "imagenet_21k=DIR", "is_ood_lists=DIR"],
    "experiment/shifted_bronzes.yaml": ["study.clipn=FILE"],
    "prompt/clipn.yaml": ["model.backbone.checkpoint_path=FILE"],
    "texts/files.yaml": ["model=laid", "texts.labels=FILE", "texts.templates=FILE"],
    "texts/imagenet21k.yaml": ["model=laid"],
    "texts/vessels.yaml": ["model=laid"],
    "task/predict.yaml": ["task.images=DIR"],
    "task/select_classes.yaml": ["task.concept=vessels"],
    "task/transfer.yaml": ["task.content=DIR"],
    "model/timm.yaml": ["model.name=resnet18"],
    "model/module.yaml": ["model.net._target_=torch.nn.Identity", "model.head=fc"],
    "task/verify.yaml": ["task.run=outputs", "task.row=cifar10"],
    "tuning/val_ood.yaml": ["tuning.sets=[container]"],
}


@pytest.fixture(scope="module", autouse=True)
def _hydra():
    register_resolvers()
    with initialize_config_dir(version_base="1.3", config_dir=str(CONF)):
        yield


def composed(primary: str, overrides: list[str]) -> DictConfig:
    cfg = compose(primary, overrides, return_hydra_config=True)
    cfg.hydra.job.name = primary
    HydraConfig.instance().set_config(cfg)
    return cfg


def nodes_with_targets(node, path):
    if isinstance(node, DictConfig):
        if "_target_" in node:
            yield path, node
        for key in node:
            yield from nodes_with_targets(node[key], f"{path}.{key}")
    elif isinstance(node, ListConfig):
        for position, item in enumerate(node):
            yield from nodes_with_targets(item, f"{path}[{position}]")


@pytest.mark.parametrize("file", FILES, ids=str)
@pytest.mark.parametrize("primary", sorted(PRIMARY))
def test_every_file_composes_and_binds(primary, file):
    group = str(file.parent)
    choice = f"[{file.stem}]" if group == "detector" else file.stem
    sign = "+" if group in APPENDED else ""
    cfg = composed(primary, [f"{sign}{group}={choice}", *REQUIRED.get(str(file), [])])
    found = {}
    for key in cfg:
        if key != "hydra":
            found |= dict(nodes_with_targets(cfg[key], key))
    for node in found.values():
        target = get_object(node["_target_"])
        arguments = {k: None for k in node if not str(k).startswith("_")}
        inspect.signature(target).bind_partial(**arguments)
    assert "task" in found


def test_all_detectors_are_the_default():
    cfg = composed("eval", [])
    assert set(cfg.detector) == {p.stem for p in (CONF / "detector").glob("*.yaml")}


@pytest.mark.parametrize("preset", ["openood", "paper"])
def test_presets_resolve(preset):
    cfg = composed("eval", [f"detector_preset={preset}"])
    assert OmegaConf.to_container(cfg.detector, resolve=True)
    assert (cfg.detector.openmax.translate == 10000) == (preset == "paper")


def test_a_run_hash_ignores_places_but_not_numbers():
    from ood_lab.run.folder import config_hash

    def digest(*overrides):
        return config_hash(OmegaConf.to_container(composed("eval", list(overrides)).copy()))

    base = digest()
    assert digest("paths.outputs=elsewhere", "tags=[a]") == base
    assert digest("detector.knn.k=7") != base
    assert digest("data.batch_size=7") != base
