"""Every YAML under conf/ composes, and every target accepts the keys it is given."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from inspect import Parameter, signature
from pathlib import Path

import pytest
from composed_nodes import check_composed, job_of, of_papers
from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from hydra.utils import get_object
from omegaconf import DictConfig, OmegaConf

from ood_lab.api.detector_settings import chosen_detectors
from ood_lab.common.arguments import hints_of
from ood_lab.detectors.base import COSTS
from ood_lab.detectors.own_score import OwnScore
from ood_lab.run.commandline.composition import leaves
from ood_lab.run.commandline.resolvers import register_resolvers
from ood_lab.run.job.run_identity import NEUTRAL, config_hash

CONF = Path(__file__).parents[2] / "conf"
NO_GROUP = {CONF}
FILES = sorted(p.relative_to(CONF) for p in CONF.rglob("*.yaml") if p.parent not in NO_GROUP)
#: One line of choices per file; train.py and eval.py differ in these.
SCRIPTS = {"task": ("train", "eval"), "experiment": ("train", "eval")}
CASES = [(script, f) for f in FILES for script in SCRIPTS.get(str(f.parent), ("eval",))]
#: Detectors come together.
CASES = [(s, f) for s, f in CASES if f.parent.name != "detector" or f.stem == "all"]
#: OOD sets come together, too.
OOD_SETS = sorted(CONF.glob("data/ood/*.yaml"))
CASES = [(s, f) for s, f in CASES if f.parent != Path("data/ood") or f.stem == OOD_SETS[0].stem]
#: A task is asked for by eval.py, an experiment by either; the other script is the slow suite's.
OTHER = {"task": "train", "experiment": "eval"}
SLOW = [(script, f) for script, f in CASES if OTHER.get(f.parts[0]) == script]
#: Others are composed with the settings of their papers (test_paper_settings.py).
OWN = sorted(f.stem for f in (CONF / "experiment").glob("*.yaml") if f.stem not in of_papers())
QUICK = [c for c in CASES if c not in SLOW and (c[1].parts[0] != "experiment" or c[1].stem in OWN)]
#: Other choices, without which a file has no meaning, and lists that a user fills in.
REQUIRED = {
    "model/module.yaml": ["model.net._target_=torch.nn.Identity"],
    "task/construction/criteria/paper.yaml": ["task=ode"],
    "task/construction/criteria/released.yaml": ["task=ode"],
    "task/oodbench_ablation.yaml": ["runs=[RUN]"],
    "task/oodbench_statistics.yaml": ["task.runs=[RUN]"],
    "task/tune_vlm.yaml": ["model=vlm"],
    "task/tune_grpo.yaml": ["model=vlm_grpo"],
}
REQUIRED |= {f"texts/{file.name}": ["model=laid"] for file in CONF.glob("texts/*.yaml")}
REQUIRED |= {f"data/ood/{file.name}": ["data=folder"] for file in OOD_SETS}


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
    """Files that choose nothing twice are composed together; an experiment is alone."""
    alone = [(script, [file]) for script, file in QUICK if file.parts[0] == "experiment"]
    yield from alone
    left = [case for case in QUICK if (case[0], [case[1]]) not in alone]
    left.sort(key=lambda case: -len(choices_of(case[1])))  # what goes with the fewest others
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


@pytest.mark.parametrize(
    ("primary", "files"),
    [*LINES, *(pytest.param(s, [f], marks=pytest.mark.slow) for s, f in SLOW)],
    ids=lambda given: given if isinstance(given, str) else " ".join(map(str, given)),
)
def test_every_file_composes_and_binds(primary, files):
    check_composed(composed_files(primary, *files))


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


def listed(name):
    return list(OmegaConf.load(CONF / "detector" / f"{name}.yaml").defaults)


def test_sets_are_what_the_classes_declare():
    everything = chosen_detectors(DETECTORS, "openood")
    own = [n for n, detector in everything.items() if isinstance(detector, OwnScore)]
    detectors = [(n, detector) for n, detector in everything.items() if n not in own]
    members = {
        cost: [name for name, detector in detectors if COSTS.index(detector.cost) <= place]
        for place, cost in enumerate(COSTS[:-1])
    }
    members |= {
        "all": [n for n in DETECTORS if n not in own],
    }
    for name, detectors_of_set in members.items():
        assert listed(name) == detectors_of_set
    assert chosen_detectors("forward", "openood").keys() == set(members["forward"])
    assert not {"odin", "iodin", "rankfeat", "adascale_a"} & set(members["forward"])
    assert listed("default") == [name for name in members["all"] if name in listed("default")]
    assert list(composed("eval", []).detector) == listed("default")
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
        config = OmegaConf.to_container(job_of(composed_files(script, *files)), resolve=True)
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


_REST = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)


def targets_of(node):
    """The names of the classes and functions of this package that a file of conf builds."""
    if isinstance(node, dict):
        target = node.get("_target_")
        yield from [target] if str(target).startswith("ood_lab.") else []
        node = list(node.values())
    for part in node if isinstance(node, list) else ():
        yield from targets_of(part)


def test_the_value_of_every_setting_can_be_checked():
    """What has no hint that can be read from outside would take any value without a word."""
    files = map(OmegaConf.load, CONF.rglob("*.yaml"))
    nodes = [OmegaConf.to_container(file, resolve=False) for file in files]
    targets = {name for node in nodes for name in targets_of(node)}
    assert len(targets) > 150
    for target in map(get_object, sorted(targets)):
        named = [p for p in signature(target).parameters.values() if p.kind not in _REST]
        assert {p.name for p in named} <= set(hints_of(target)), target
