"""What a preset means for a method: the files of conf/recipe, and what wins over them."""

import csv
import json
from itertools import groupby
from pathlib import Path

import pytest
from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf

from ood_lab.common.errors import UserError
from ood_lab.run.building.checkpoints import inherit
from ood_lab.run.commandline.composition import composed
from ood_lab.run.commandline.line_checks import check_line
from ood_lab.run.commandline.resolvers import register_resolvers
from ood_lab.run.job.preparation import recipe_of
from ood_lab.scripts import CONF

PRESETS = ("builtin", "official", "shiftedbronzes")
DEFAULTS = {"vessels": "builtin", "vessels_longtail": "builtin"}  # official on all other data
# Every key that depends on the preset, and its values: one row per method and key.
TABLE = list(csv.DictReader((Path(__file__).parent / "recipes.csv").open(newline="")))
METHODS = {m: list(rows) for m, rows in groupby(TABLE, lambda row: (row["group"], row["method"]))}


@pytest.fixture(scope="module", autouse=True)
def _resolvers():
    register_resolvers()


#: A preset with a file of its own for each method, by group; the slow suite composes all presets.
QUICK = {"model": "shiftedbronzes", "prompt": "builtin"}
CASES = [
    pytest.param(method, preset, marks=[pytest.mark.slow] * (preset != QUICK[method[0]]))
    for method in METHODS
    for preset in PRESETS
]


@pytest.mark.parametrize(("method", "preset"), CASES)
def test_every_value_of_a_recipe(method, preset):
    # The size of training images follows the CLIP.
    clip = ["clip=vit_b16"] if method[0] == "prompt" and preset != "builtin" else []
    cfg = composed("train", ["=".join(method), f"preset={preset}", "detector=[]", *clip])
    values = {row["key"]: OmegaConf.select(cfg, row["key"]) for row in METHODS[method]}
    plain = {
        k: OmegaConf.to_container(v) if OmegaConf.is_config(v) else v for k, v in values.items()
    }
    assert plain == {row["key"]: json.loads(row[preset]) for row in METHODS[method]}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("clip", "pixels"),
    [("tiny", 64), ("scenes", 96), ("vit_b32", 224), ("open_clip clip.name=ViT-L-14-336", 336)],
)
def test_prompts_train_on_images_of_the_size_of_the_clip(clip, pixels):
    cfg = composed("train", ["prompt=coop", "preset=official", *f"clip={clip}".split()])
    assert cfg.model.input_size == cfg.model.geometry[0].size == pixels


def test_a_recipe_is_named_by_a_method_and_a_preset():
    for path in (CONF / "recipe").rglob("*.yaml"):
        method, _, preset = path.stem.rpartition("_")
        assert preset in (*PRESETS, "openood"), path
        assert (CONF / path.parent.name / f"{method}.yaml").exists(), path


@pytest.mark.slow
@pytest.mark.parametrize("data", sorted(p.stem for p in (CONF / "data").glob("*.yaml")))
def test_the_data_choose_the_preset_where_the_user_does_not(data):
    line = [f"data={data}", "detector=[]"]
    assert composed("eval", line).preset == DEFAULTS.get(data, "official")


#: What OpenOOD's recipes of losses set, where it is not 100 epochs of 128 images at 0.1 and 5e-4:
#: epochs, images of a batch, learning rate and weight decay.
SCHEDULES = dict.fromkeys(("energy_reg", "mixoe", "ish"), (10, 128, 0.001, 5e-4))
SCHEDULES |= {"cider": (100, 512, 0.5, 1e-4), "npos": (100, 256, 0.1, 1e-4)}
SCHEDULES |= {"palm": (100, 16, 0.1, 1e-4), "mos": (100, 128, 0.003, 0.0)}
LOSSES = [
    pytest.param(path.stem, marks=[pytest.mark.slow] * (path.stem not in {*SCHEDULES, "vos"}))
    for path in sorted((CONF / "loss").glob("*.yaml"))
]


@pytest.mark.parametrize("loss", LOSSES)
def test_losses_have_the_schedule_of_openood(loss):
    line = ["experiment=openood_cifar10_train", "openood=DIR", "detector=[]", f"loss={loss}"]
    cfg = composed("train", line)
    sgd = cfg.model.classifier.optimizer
    schedule = (cfg.trainer.max_epochs, cfg.data.batch_size, sgd.lr, sgd.weight_decay)
    assert schedule == SCHEDULES.get(loss, (100, 128, 0.1, 5e-4))


@pytest.mark.parametrize("data", ["vessels", "folder"])
def test_the_command_line_wins_over_the_recipe(data):
    own = {"trainer.max_epochs": 7, "data.batch_size": 3, "model.trunk": "resnet34"}
    line = [f"{key}={value}" for key, value in own.items()]
    cfg = composed("train", ["model=nts", f"data={data}", "detector=[]", "model.kwargs={}", *line])
    assert {key: OmegaConf.select(cfg, key) for key in own} == own
    assert cfg.model.backbone.kwargs == {}
    assert cfg.model.backbone.name == "resnet34"


def test_so_does_an_experiment():
    assert composed("train", ["model=nts", "experiment=smoke"]).trainer.max_epochs == 1


@pytest.mark.parametrize("preset", PRESETS)
def test_arguments_of_a_trunk_are_replaced_as_a_whole(preset):
    cfg = composed("train", ["model=nts", "detector=[]", f"preset={preset}", "model.kwargs={a:1}"])
    assert cfg.model.kwargs == {"a": 1}


def test_a_recipe_is_no_choice_of_its_own():
    with pytest.raises(UserError, match="'recipe' has no choices of its own, recipe/loss, "):
        check_line("train", ["recipe=official"])
    with pytest.raises(UserError, match="Did you mean official"):
        check_line("train", ["preset=offical"])


def test_coop_trains_as_long_as_its_authors_by_shots():
    line = ["prompt=coop", "data=folder", "detector=[]"]
    lines = [[*line, f"data.shots={n}"] for n in (1, 4, 16)]
    assert [composed("train", line).trainer.max_epochs for line in lines] == [50, 100, 200]


SAID = {
    ("train", "model=nts"): "conf/recipe/model/nts_builtin.yaml (preset=builtin)",
    ("train", "model=nts", "data=folder"): "conf/model/nts.yaml unchanged (preset=official)",
    ("train", "model=sps", "preset=shiftedbronzes"): (
        "conf/recipe/model/sps_shiftedbronzes.yaml (preset=shiftedbronzes)"
    ),
    ("train",): "conf/model/resnet10s.yaml unchanged (preset=builtin)",
    ("eval", "prompt=gl_mcm"): "conf/recipe/prompt/gl_mcm_builtin.yaml (preset=builtin)",
    ("eval", "task=compare"): None,
}


@pytest.mark.slow
@pytest.mark.parametrize("line", SAID, ids=" ".join)
def test_a_run_says_which_recipe_it_took(line):
    script, *overrides = line
    assert recipe_of(composed(script, overrides), overrides) == SAID[line]


@pytest.fixture
def run(tmp_path):
    """The folder of a training of NTS-Net on images of one's own."""
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "best.ckpt").touch()
    cfg = composed("train", ["model=nts", "data=folder", "data.batch_size=5", "detector=[]"])
    OmegaConf.save(cfg, tmp_path / "config.yaml", resolve=True)
    return tmp_path


def evaluation(*overrides):
    """The configuration of an evaluation after data and model were taken over."""
    cfg = composed("eval", overrides)
    before = HydraConfig.instance().cfg
    found = inherit(cfg, overrides)
    assert HydraConfig.instance().cfg is before
    return found


@pytest.mark.slow
@pytest.mark.parametrize("more", [(), ("model=nts",)])
def test_an_evaluation_takes_the_preset_of_its_run_over(run, more):
    cfg = evaluation(f"ckpt={run}", *more)
    assert (cfg.preset, cfg.data.name, cfg.data.batch_size) == ("official", "folder", 5)
    assert (cfg.model.name, cfg.model.trunk) == ("nts", "resnet50.tv_in1k")
    assert cfg.model.backbone.input_size == 448
    said = recipe_of(cfg, [f"ckpt={run}", *more])
    assert said == ("conf/model/nts.yaml unchanged (preset=official)" if more else f"that of {run}")


def test_but_not_where_the_line_chooses_data_or_preset(run):
    assert evaluation(f"ckpt={run}", "data=vessels").preset == "builtin"
    assert evaluation(f"ckpt={run}", "preset=shiftedbronzes").preset == "shiftedbronzes"


def test_nor_where_an_experiment_chooses_data(run):
    benchmark = ("experiment=openood_cifar10_seed", "openood=D", "ckpt_openood=C")
    found = evaluation(f"ckpt={run}", *benchmark, "detector=[msp]")
    assert (found.data.name, found.model.name) == ("openood_cifar10", "nts")
    assert evaluation(f"ckpt={run}", "experiment=shift_report").data.name == "folder"


@pytest.mark.parametrize("more", [(), ("data.batch_size=9",)])
def test_an_evaluation_stands_for_the_network_that_it_evaluated(tmp_path, more):
    weights = tmp_path / "own.pt"
    line = ["model=timm", "model.name=resnet18", f"model.weights={weights}", "data=folder"]
    cfg = composed("eval", [*line, "detector=[]", "seed=3"])
    OmegaConf.save(cfg, tmp_path / "config.yaml", resolve=True)
    found = evaluation(f"ckpt={tmp_path}", "detector=[knn]", *more)
    assert found.ckpt is None
    assert (found.model.name, found.model.weights) == ("resnet18", str(weights))
    assert (found.data.name, found.data.batch_size, found.seed) == ("folder", 9 if more else 64, 3)
    again = evaluation(f"ckpt={tmp_path}", "model=module", "model.net._target_=tiny_net.TinyNet")
    assert (again.model.name, again.model.weights) == ("TinyNet", None)
