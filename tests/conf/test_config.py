"""Every YAML under conf/ composes, and every target accepts the keys it is given."""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from hydra.utils import get_object
from omegaconf import DictConfig, ListConfig, OmegaConf, open_dict

from ood_lab.api.detector_settings import chosen_detectors
from ood_lab.detectors.base import COSTS
from ood_lab.detectors.own_score import OwnScore
from ood_lab.run.building.nodes import check_nodes
from ood_lab.run.commandline.composition import leaves
from ood_lab.run.commandline.resolvers import register_resolvers
from ood_lab.run.job.run_identity import NEUTRAL, config_hash

CONF = Path(__file__).parents[2] / "conf"
NO_GROUP = {CONF}
FILES = sorted(p.relative_to(CONF) for p in CONF.rglob("*.yaml") if p.parent not in NO_GROUP)
#: One line of choices per file; detectors come together, and train.py and eval.py differ in these.
SCRIPTS = {"task": ("train", "eval"), "experiment": ("train", "eval")}
CASES = [
    *((script, f) for f in FILES for script in SCRIPTS.get(str(f.parent), ("train",))),
    ("eval", Path("detector/all.yaml")),
]
CASES = [(script, f) for script, f in CASES if f.parent.name != "detector" or script == "eval"]
#: OOD sets come together, too.
OOD_SETS = sorted(CONF.glob("data/ood/*.yaml"))
CASES = [(s, f) for s, f in CASES if f.parent != Path("data/ood") or f.stem == OOD_SETS[0].stem]
#: A task is asked for by eval.py, an experiment by either; the other script is the slow suite's.
OTHER = {"task": "train", "experiment": "eval"}
SLOW = [(script, f) for script, f in CASES if OTHER.get(f.parts[0]) == script]
QUICK = [case for case in CASES if case not in SLOW]
REQUIRED = {  # what the user has to fill in
    "annotations/cityscapes.yaml": ["annotations.root=DIR"],
    "annotations/coco.yaml": ["annotations.file=FILE", "annotations.images=DIR"],
    "annotations/lvis.yaml": ["annotations.file=FILE", "annotations.images=DIR"],
    "annotations/nuscenes.yaml": ["annotations.root=DIR"],
    "clip/open_clip.yaml": ["clip.name=ViT-B-16"],
    "concepts/amber.yaml": ["concepts.path=DIR"],
    "experiment/is_ood.yaml": ["imagenet_1k=DIR", "imagenet_21k=DIR", "is_ood_lists=DIR"],
    "experiment/ode.yaml": ["concepts.path=DIR", "image_text.detector.path=DIR", "lvlm.path=DIR"],
    "experiment/ode_released.yaml": [
        "concepts.path=DIR",
        "generator.path=DIR",
        "image_text.detector.path=DIR",
    ],
    "experiment/oodbench_hard.yaml": ["annotations.file=FILE", "annotations.images=DIR"],
    "experiment/oodbench_paper.yaml": [
        *("annotations.file=FILE", "annotations.images=DIR", "lvlm.path=DIR"),
        *("image_text.clip.path=DIR", "image_text.blip2.path=DIR"),
    ],
    "experiment/shifted_bronzes.yaml": ["study.clipn=FILE"],
    "generator/diffusers.yaml": ["generator.path=DIR"],
    "generator/diffusers_published.yaml": ["generator.path=DIR"],
    "generator/openai.yaml": ["generator.model=NAME"],
    "image_text/blip2.yaml": ["image_text.blip2.path=DIR"],
    "image_text/clip.yaml": ["image_text.clip.path=DIR"],
    "image_text/detector.yaml": ["image_text.detector.path=DIR"],
    "image_text/groupvit.yaml": ["image_text.groupvit.path=DIR"],
    "image_text/lit.yaml": ["image_text.lit.path=DIR"],
    "image_text/open_clip.yaml": ["image_text.open_clip.clip.name=ViT-B-16"],
    "image_text/siglip.yaml": ["image_text.siglip.path=DIR"],
    "judge/openai.yaml": ["judge.model=NAME"],
    "judge/replay.yaml": ["judge.path=FILE"],
    "judge/transformers.yaml": ["judge.path=DIR"],
    "reader/openai.yaml": ["reader.model=NAME"],
    "reader/replay.yaml": ["reader.path=FILE"],
    "reader/transformers.yaml": ["reader.path=DIR"],
    "lvlm/detector.yaml": ["lvlm.path=DIR"],
    "lvlm/grounding_dino.yaml": ["lvlm.path=DIR"],
    "lvlm/openai.yaml": ["lvlm.model=NAME"],
    "lvlm/owlv2.yaml": ["lvlm.path=DIR"],
    "lvlm/replay.yaml": ["lvlm.path=FILE"],
    "lvlm/transformers.yaml": ["lvlm.path=DIR"],
    "prompt/clipn.yaml": ["model.backbone.checkpoint_path=FILE"],
    "texts/files.yaml": ["model=laid", "texts.labels=FILE", "texts.templates=FILE"],
    "texts/imagenet21k.yaml": ["model=laid"],
    "texts/vessels.yaml": ["model=laid"],
    "task/construction/criteria/paper.yaml": ["task=ode"],
    "task/construction/criteria/released.yaml": ["task=ode"],
    "task/amber.yaml": ["task.source.path=DIR", "task.source.images=DIR"],
    "task/hallusion.yaml": ["task.source.path=DIR", "task.source.images=DIR"],
    "task/mme.yaml": ["task.source.path=DIR"],
    "task/pope.yaml": ["task.source.path=DIR", "task.source.images=DIR"],
    "task/oodbench_ablation.yaml": ["runs=[RUN]"],
    "task/oodbench_statistics.yaml": ["task.runs=[RUN]"],
    "task/predict.yaml": ["task.images=DIR"],
    "task/select_classes.yaml": ["task.concept=vessels"],
    "task/transfer.yaml": ["task.content=DIR"],
    "model/vlm.yaml": ["model.chats.train=FILE"],
    "model/vlm_grpo.yaml": ["model.prompts.train=FILE"],
    "task/tune_vlm.yaml": ["model=vlm", "model.chats.train=FILE"],
    "task/tune_grpo.yaml": ["model=vlm_grpo", "model.prompts.train=FILE"],
    "model/timm.yaml": ["model.name=resnet18"],
    "model/hf.yaml": ["model.path=DIR"],
    "model/exported.yaml": ["model.path=FILE"],
    "model/onnx.yaml": ["model.path=FILE"],
    "model/torch_hub.yaml": ["model.repo=DIR", "model.name=net"],
    "model/module.yaml": ["model.net._target_=torch.nn.Identity", "model.head=fc"],
    "task/verify.yaml": ["task.run_folder=outputs", "task.row=cifar10"],
    "tuning/val_ood.yaml": ["tuning.sets=[container]"],
    "model/torchvision.yaml": ["model.name=resnet18"],
}
COCO = ["annotations.file=FILE", "annotations.images=DIR", "lvlm.path=DIR"]
REQUIRED |= {f"experiment/{name}.yaml": COCO for name in ("oric", "oric_released")}
OPENOOD = ("cifar10", "cifar100", "imagenet200", "imagenet")
REQUIRED |= {f"data/openood_{name}.yaml": ["openood=DIR"] for name in OPENOOD}
REQUIRED |= {"experiment/openood_cifar10_train.yaml": ["openood=DIR"]}
PUBLISHED = ("cifar10", "cifar100", "cub", "stanford_cars", "fgvc_aircraft")
REQUIRED |= {f"data/{name}.yaml": ["root=DIR"] for name in PUBLISHED}
REQUIRED |= {f"data/ood/{file.name}": ["data=folder", "root=DIR"] for file in OOD_SETS}
REQUIRED |= {
    f"experiment/openood_{name}.yaml": ["openood=DIR", "ckpt_openood=DIR"]
    for name in ("cifar10_seed", "cifar100_seed", "imagenet200_seed", "imagenet")
}


def line_of(file: Path) -> list[str]:
    """What chooses it."""
    group = str(file.parent)
    few = [] if group in ("detector", "experiment") else ["detector=[msp]"]  # most of the time
    if file.parts[0] == "recipe":  # taken where its method and its preset are chosen
        method, _, preset = file.stem.rpartition("_")
        return [f"{file.parent.name}={method}", f"preset={preset}", *few]
    choice = f"[{file.stem}]" if group == "detector" else file.stem
    if group == "data/ood":
        choice = f"[{','.join(each.stem for each in OOD_SETS)}]"
    return [f"{group}={choice}", *few, *REQUIRED.get(str(file), [])]


def choices_of(file: Path) -> dict[str, str]:
    """What it chooses, by group and key; a prompt is a model."""
    choices = dict(choice.split("=", 1) for choice in line_of(file))
    return {"model" if key == "prompt" else key: value for key, value in choices.items()}


def lines() -> Iterator[tuple[str, list[Path]]]:
    """Files that choose nothing twice are composed together; a task or an experiment is alone."""
    alone = [(script, [file]) for script, file in QUICK if file.parts[0] in OTHER]
    yield from alone
    left = [case for case in QUICK if (case[0], [case[1]]) not in alone]
    while left:
        (script, first), *_ = left
        files, chosen = [], choices_of(first)
        for other, file in left:
            more = choices_of(file)
            if other == script and all(chosen.get(key, v) == v for key, v in more.items()):
                files.append(file)
                chosen |= more
        yield script, files
        left = [(other, file) for other, file in left if other != script or file not in files]


LINES = list(lines())


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


@cache
def composed_files(primary: str, *files: Path) -> DictConfig:
    """With one file of a group chosen, or of several groups."""
    lines = [line_of(file) for file in files]
    return composed(primary, list(dict.fromkeys(override for line in lines for override in line)))


def nodes_with_targets(node, path):
    if isinstance(node, DictConfig):
        if "_target_" in node:
            yield path, node
        for key in node:
            yield from nodes_with_targets(node[key], f"{path}.{key}")
    elif isinstance(node, ListConfig):
        for position, item in enumerate(node):
            yield from nodes_with_targets(item, f"{path}[{position}]")


@pytest.mark.parametrize(
    ("primary", "files"),
    [*LINES, *(pytest.param(s, [f], marks=pytest.mark.slow) for s, f in SLOW)],
    ids=lambda given: given if isinstance(given, str) else " ".join(map(str, given)),
)
def test_every_file_composes_and_binds(primary, files):
    cfg = composed_files(primary, *files)
    found = {}
    for key in cfg:
        if key != "hydra":
            found |= dict(nodes_with_targets(cfg[key], key))
    for node in found.values():
        target = get_object(node["_target_"])
        arguments = {k: None for k in node if not str(k).startswith("_")}
        inspect.signature(target).bind_partial(**arguments)
    settings = OmegaConf.to_container(cfg, resolve=False)
    del settings["hydra"]
    check_nodes(OmegaConf.to_container(OmegaConf.create(settings), resolve=True))
    assert "task" in found


#: Sets of detectors, the cheapest first; all others in the folder are detectors.
SETS = ("logits", "features", "forward", "default", "all")
DETECTORS = sorted({p.stem for p in (CONF / "detector").glob("*.yaml")} - {*SETS, "places"})


@pytest.mark.parametrize("name", DETECTORS)
def test_detector_files_have_one_shape(name):
    """The detector, and beside it the grid of those of its settings that tuning may choose."""
    file = CONF / "detector" / f"{name}.yaml"
    content = OmegaConf.load(file)
    assert content.keys() <= {"detector", "tuning"}
    assert list(content.detector) == [file.stem]
    grids = content.get("tuning", {"grids": {}})
    assert list(grids) == ["grids"]
    assert grids["grids"].keys() <= {file.stem}
    assert grids["grids"].get(file.stem, {}).keys() <= content.detector[file.stem].keys()


def test_sets_are_what_the_classes_declare():
    everything = chosen_detectors(DETECTORS, "openood")
    own = [n for n, detector in everything.items() if isinstance(detector, OwnScore)]
    detectors = [(n, detector) for n, detector in everything.items() if n not in own]
    members = {
        cost: [name for name, detector in detectors if COSTS.index(detector.cost) <= place]
        for place, cost in enumerate(COSTS[:-1])
    }
    members |= {
        "default": [n for n, d in detectors if d.default],
        "all": [n for n in DETECTORS if n not in own],
    }
    for name in SETS:
        assert list(OmegaConf.load(CONF / "detector" / f"{name}.yaml").defaults) == members[name]
    assert chosen_detectors("forward", "openood").keys() == set(members["forward"])
    assert not {"odin", "iodin", "rankfeat", "adascale_a"} & set(members["forward"])
    assert list(composed("eval", []).detector) == members["default"]
    line = ["detector=[logits,knn]"]
    assert list(composed("eval", line).detector) == [*members["logits"], "knn"]


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["auto", "openood", "paper"])
def test_presets_resolve(preset):
    cfg = composed("eval", [f"detector_preset={preset}"])
    assert OmegaConf.to_container(cfg.detector, resolve=True)
    assert (cfg.detector.openmax.translate == 10000) == (preset == "paper")


def another(value):
    """A value of the same kind, or something where there was nothing."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value + 1
    return f"{value}x" if isinstance(value, str) else "x"


@contextmanager
def replaced(config, key):
    """The configuration with another value of a leaf; as it was afterwards."""
    *parents, leaf = key.split(".")
    node = config
    for part in parents:
        node = node[int(part)] if isinstance(node, list) else node[part]
    leaf = int(leaf) if isinstance(node, list) else leaf
    before = node[leaf]
    node[leaf] = another(before)
    yield
    node[leaf] = before


@pytest.mark.slow
def test_a_run_hash_leaves_out_what_is_listed_and_nothing_else():
    """Every key of every file of every group, with another value."""
    seen = set()
    for script, files in LINES:
        cfg = composed_files(script, *files).copy()
        with open_dict(cfg):
            del cfg["hydra"]  # how jobs are launched is not a part of a job
        config = OmegaConf.to_container(cfg, resolve=True)
        before = config_hash(config)
        for key in {key for key, _ in leaves(config)} - seen:
            neutral = any(f"{key}.".startswith(f"{listed}.") for listed in NEUTRAL)
            # Of a set that is made by its class, wherever it stands.
            neutral |= key.startswith("data.") and key.endswith(".download")
            with replaced(config, key):
                assert (config_hash(config) == before) == neutral, (files, key)
            seen.add(key)
    assert {"callbacks.ema.decay", "callbacks.best.monitor", "trainer.precision"} <= seen
    unused = [n for n in NEUTRAL if not any(f"{key}.".startswith(f"{n}.") for key in seen)]
    assert not unused
