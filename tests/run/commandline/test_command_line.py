"""Command lines that cannot be meant: one line names the culprit and what may have been meant."""

import json
import random
import shutil

import pytest
import wandb
from cli import call
from omegaconf import OmegaConf
from PIL import Image

from ood_lab.common.errors import UserError
from ood_lab.run.building.trainers import check_machine
from ood_lab.run.commandline.composition import composed
from ood_lab.run.commandline.line_checks import advice, check_line
from ood_lab.run.commandline.overrides import parsed, readable, values_of
from ood_lab.run.commandline.resolvers import register_resolvers
from ood_lab.run.job.launch import JOB_VARIABLE, read_line
from ood_lab.run.tracking.experiment_loggers import check_login

CASES = {
    "a flag": (["--epochs=10"], "unrecognized arguments: --epochs=10. Settings are written key="),
    "no value": (["data"], "'data' has no value"),
    "no key": (["=5"], "'' in '=5' is not a key"),
    "a null choice": (["logger=null"], "logger=None is unknown. Did you mean none?"),
    "an odd key": (["dat'a.train=3"], "is not a key of the configuration"),
    "an open bracket": (["detector='[knn"], "quotation marks do not match"),
    "learning rate": (["lr=1e-4"], "'lr'. Did you mean model.classifier.optimizer.lr?"),
    "added": (["+lr=1e-4"], "'lr'. Did you mean model.classifier.optimizer.lr?"),
    "a sweep": (["data.batch_size=8,16"], "data.batch_size has several values: add -m"),
    "an endless sweep": (["-m", "seed=interval(0,1)"], "cannot sweep over 'seed=interval(0,1)'"),
    "no choice": (["data="], "data= is unknown. Valid: cifar10"),
    "a number": (["trainer=3"], "trainer=3 is unknown. Valid: cpu"),
    "left out": (["~seed"], "~seed: this setting is needed"),
    "a group left out": (["~logger"], "a group cannot be left out; choose another file"),
    "Hydra's": (["hydra.rn.dir=x"], "'rn'"),
    "interpolation": (["seed=${nowhere}"], "seed: Interpolation key 'nowhere' not found"),
    "environment": (["name=${oc.env:NO_SUCH_THING}"], "name: Environment variable 'NO_SUCH_THING'"),
    "a way out": (["name=../../x"], "name='../../x' is not a directory below paths.outputs"),
    "no name": (["name="], "name='' is not a directory below paths.outputs"),
    "a switch": (["force=no"], "force=no: give true or false"),
    "processes": (["trainer.devices=99", "trainer=cpu"], "would start 99 processes on the"),
    "devices": (["trainer.devices=none"], "cannot build 'trainer'"),
}


#: A mistyped key, and the advice.
ADVICE = {
    "learning_rate": "Did you mean model.classifier.optimizer.lr?",
    "epochs": "Did you mean trainer.max_epochs?",
    "sed": "Did you mean seed?",
    "gpus": "Did you mean trainer.devices?",
    "data.id.train": "It belongs to data=folder, which this line does not choose.",
    "detector.knn.k": "It belongs to detector=knn, which this line does not choose.",
}


def test_a_key_that_nothing_reads_is_explained():
    register_resolvers()
    cfg = composed("train", ["detector=[msp]"])
    assert {key: advice(key, cfg) for key in ADVICE} == ADVICE


@pytest.mark.parametrize("case", CASES)
def test_one_line_before_anything_is_made(case, tmp_path, capsys):
    arguments, named = CASES[case]
    if not any("detector" in argument for argument in arguments):
        arguments = ["detector=[]", *arguments]  # to compose all of them is half of the time
    assert call("train.py", f"paths.outputs={tmp_path}", "logger=none", *arguments) == 1
    printed = capsys.readouterr()
    (error,) = printed.err.splitlines()
    assert error.startswith("error: ")
    assert named in error
    assert not printed.out
    assert not list(tmp_path.iterdir())


def test_a_gpu_that_is_not_there_is_told_with_the_remedy(monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    with pytest.raises(UserError, match=r"finds no GPU on this machine; use trainer=cpu"):
        check_machine({"accelerator": "gpu"})
    check_machine({"accelerator": "auto"})
    check_machine({"accelerator": "cpu", "devices": "auto"})
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    for devices in (4, "4", [0, 1, 2, 3], "0,1,2,3"):
        with pytest.raises(UserError, match=r"trainer\.devices=4: this machine has 2 GPU"):
            check_machine({"accelerator": "auto", "devices": devices})
    check_machine({"accelerator": "gpu", "devices": -1})


def test_two_processes_may_share_a_single_core(monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0})
    check_machine({"accelerator": "cpu", "devices": 2})
    with pytest.raises(UserError, match="give at most 2"):
        check_machine({"accelerator": "cpu", "devices": 3})


ONLINE = {"wandb": {"_target_": "lightning.pytorch.loggers.WandbLogger", "offline": False}}


@pytest.mark.parametrize(("key", "reason"), [("", "No API key"), ("abc", "API key must have")])
def test_wandb_without_an_account_offers_to_go_offline(key, reason, monkeypatch, tmp_path):
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setenv("WANDB_API_KEY", key)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    wandb.teardown()  # of a test before: it would keep to that one's mode
    with pytest.raises(UserError, match=rf"{reason}.*WANDB_MODE=offline.*logger=none"):
        check_login(ONLINE)
    monkeypatch.setenv("WANDB_MODE", "offline")
    check_login(ONLINE)


def test_a_folder_with_a_comma_in_its_name(tmp_path, capsys):
    folder = tmp_path / "one, two"
    for name in ("a", "b"):
        (folder / name).mkdir(parents=True)
        for i in range(10):
            Image.new("RGB", (8, 8), (20 * i, 9, 9)).save(folder / name / f"{i}.png")
    data = ("data=folder", f"data.id.train={folder}", f"data.ood.x={folder}/a")
    places = (f"paths.outputs={tmp_path}/out", "logger=none")
    assert call("eval.py", "task=data_check", *data, *places) == 0
    assert str(folder) in capsys.readouterr().out


@pytest.mark.parametrize(
    ("typed", "value"),
    [
        ("runs=[A/seed=0,B/seed=0]", ["A/seed=0", "B/seed=0"]),
        ("runs=[A/seed=0, 'B/a,b=c']", ["A/seed=0", "B/a,b=c"]),
        ("runs=A/seed=0", "A/seed=0"),
        ("runs=it's", "it's"),
        ("runs=a\\", "a\\"),
        ("runs=/home/jörg/#1", "/home/jörg/#1"),
        ("++data.ood.x={path: a/seed=0, root: /b}", {"path": "a/seed=0", "root": "/b"}),
    ],
)
def test_values_that_hydra_cannot_read_bare(typed, value):
    assert values_of(read_line([typed])[1].overrides[0]) == [value]


def test_a_path_with_a_comma_is_no_sweep(tmp_path):
    (tmp_path / "a,b").mkdir()
    assert values_of(readable(f"ckpt={tmp_path}/a,b")) == [f"{tmp_path}/a,b"]
    assert values_of(readable(f"ckpt={tmp_path}/a,c")) == [f"{tmp_path}/a", "c"]
    assert values_of(readable("ckpt=A/seed=0,B/seed=1")) == ["A/seed=0", "B/seed=1"]


ODD_NAMES = (
    "it's",
    "50%",
    "a:b",
    "end ",
    "2023",
    "off",
    "1e5",
    "a,b",
    "[a]",
    "{b}",
    "#h",
    "a'b\"c",
)


@pytest.mark.parametrize("name", ODD_NAMES)
def test_a_path_is_a_path_whatever_it_looks_like(name, tmp_path, monkeypatch):
    register_resolvers()
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).mkdir()
    for typed in (name, f"{tmp_path}/{name}"):
        for key in ("data.ood.mine", "data.id.test", "ckpt"):
            read = parsed(readable(f"{key}={typed}"))
            assert not read.is_sweep_override()
            assert read.value() == typed


def test_what_no_path_and_no_set_may_be_called(tmp_path):
    (tmp_path / "${x}").mkdir()
    with pytest.raises(UserError, match=r"'\$\{' refers to another setting: rename the folder"):
        read_line([f"data.ood.mine={tmp_path}/${{x}}"])
    for name in ("größe", "a/b", "a.b", "a b", "3d", "2-d", "1e3", "007"):
        for kind in ("ood", "ood_val", "csid", "ood_groups"):
            with pytest.raises(UserError, match=f"'{name}' cannot be the name of a set") as caught:
                read_line([f"data.{kind}.{name}=DIR"])
            advised = str(caught.value).rpartition("as in ")[2]
            assert read_line([f"{advised}=DIR"])
    assert read_line(["data.ood.a-b.path=D"])[0] == ["++data.ood.a-b.path=D"]


@pytest.fixture
def run_of_photos(tmp_path):
    """A run as train.py leaves it, as far as its data goes."""
    for name in ("id/cat", "id/dog", "flat", "off"):
        (tmp_path / name).mkdir(parents=True)
        for i in range(10):
            pixels = Image.effect_noise((12, 12), 9 + i).convert("RGB")
            pixels.save(tmp_path / name / f"{name[-3:]}{i}.png")
    register_resolvers()
    cfg = composed("eval", ["data=folder", f"++data.id.train={tmp_path}/id", "data.num_workers=0"])
    run = tmp_path / "it's a run" / "seed=0"
    (run / "checkpoints").mkdir(parents=True)
    (run / "checkpoints" / "best.ckpt").touch()
    kept = {"seed": 0, "preset": cfg.preset, "data": cfg.data, "model": {}, "paths": cfg.paths}
    (run / "config.yaml").write_text(OmegaConf.to_yaml(OmegaConf.create(kept)))
    return run


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["data.id.test=id", "data.ood.x=off"], None),
        (["data.csid.blur=id", "data.full_spectrum=true"], None),
        (["data.full_spectrum=true"], "needs csID sets"),
        (["data.id.tset=flat"], "data.id.tset is not a split: did you mean 'test'"),
        (["data.batch_sise=3"], "unknown key 'data.batch_sise'. Did you mean data.batch_size"),
        (["data.ood.x=" + "y" * 300], "yyy"),
        (["data.ood." + "x" * 300 + "=off"], "up to 100 letters"),
    ],
)
def test_the_data_of_a_run_can_be_changed(run_of_photos, given, said, capsys, monkeypatch):
    monkeypatch.chdir(run_of_photos.parents[1])
    monkeypatch.setenv("COLUMNS", "200")
    places = ("ckpt=it's a run/seed=0", "paths.outputs=out")
    assert call("eval.py", "task=data_check", *places, *given) == (1 if said else 0)
    printed = capsys.readouterr()
    errors = printed.err.splitlines()
    assert (said in errors[-1] and len(errors) == 1) if said else not errors
    if said is None:
        name = given[0].split("=")[0].rpartition(".")[2]
        assert any(line.split()[:1] == [name] for line in printed.out.splitlines())


def odd_settings(rng):
    """Settings beside ``ckpt=RUN`` as people type them, and the images that ``x`` then has."""
    place = rng.choice(ODD_NAMES)
    source = rng.choice([place, f"{{here}}/{place}", "flat", "flat", "nowhere", "y" * 300, "3"])
    name = rng.choice(["x", "x", "x", "größe", "a/b", "a.b", "train", "x" * 300])
    line = [f"data.{rng.choice(['ood', 'ood', 'ood_val'])}.{name}={source}"]
    others = ["data.id.test=id", "data.full_spectrum=true", "data.id.train=flat", "data.root=id"]
    others += ["data.batch_sise=3", "data.check=headers", "data.shift_order=[x]", "data.id.tset=id"]
    others += [
        "data.levels=nowhere.csv",
        "data.hierarchy=flat",
        "data.per_cell=3",
        "data.ood.y=off",
    ]
    return line + rng.sample(others, rng.choice((0, 1, 2))), 10


@pytest.mark.slow
@pytest.mark.parametrize(
    "part", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 9))]
)
def test_odd_settings_beside_ckpt_end_in_a_result_or_one_line(
    part, run_of_photos, capsys, monkeypatch
):
    here = run_of_photos.parents[1]
    monkeypatch.chdir(here)
    monkeypatch.setenv("COLUMNS", "200")
    for name in ODD_NAMES:
        if not (here / name).exists():  # "off" has its ten images already
            shutil.copytree(here / "flat", here / name)
    wrong = []
    for case in range(8):
        given, images = odd_settings(random.Random(f"{part} {case}"))
        given = [override.replace("{here}", str(here)) for override in given]
        line = ["task=data_check", "ckpt=it's a run/seed=0", f"paths.outputs=out{case}", *given]
        try:
            status = call("eval.py", *line)
        except Exception as error:  # all of them are told, not the first alone
            wrong.append(f"{given}: {type(error).__name__}: {error}")
            continue
        printed = capsys.readouterr()
        errors = printed.err.splitlines()
        rows = [line.split() for line in printed.out.splitlines()]
        right = status == 0 and not errors and ["x", str(images)] in [row[:2] for row in rows]
        told = status == 1 and len(errors) == 1 and errors[0].startswith("error: ")
        if not (right or told):
            wrong.append(f"{given}: exit {status}, {errors[-2:]}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("choice", ["all", "default", "[all]", "[default,rmds]"])
def test_sets_of_detectors_are_choices(choice):
    check_line("eval", [f"detector={choice}"])


def test_processes_of_torchrun_that_the_trainer_does_not_join_are_refused(
    tmp_path, monkeypatch, capsys
):
    """They would all do the same work, and write the same files."""
    started = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}
    for name, value in {**started, "TORCHELASTIC_RUN_ID": "none"}.items():
        monkeypatch.setenv(name, value)
    line = ("task=shift_scores", "logger=none", "trainer=cpu", f"paths.root={tmp_path}")
    assert call("eval.py", *line) == 1
    (error,) = capsys.readouterr().err.splitlines()
    assert error.startswith(
        "error: torchrun has started 4 processes, and the Trainer works with 1:"
    )
    assert "trainer.devices=2 trainer.num_nodes=2" in error
    assert not (tmp_path / "outputs").exists()


def test_a_further_rank_does_the_job_of_the_first(monkeypatch, capsys):
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setenv(JOB_VARIABLE, json.dumps(["eval", ["ckpt=nowhere"]]))  # train takes none
    assert call("train.py", "-m", "seed=0,1", "hydra.job.name=train_ddp_process_1") == 1
    assert "nowhere" in capsys.readouterr().err
