"""Every setting of the papers, held against what its experiment composes."""

import re
import shlex
from pkgutil import resolve_name

import pytest
import yaml
from composed_nodes import check_composed, of_papers
from omegaconf import DictConfig, ListConfig, OmegaConf

from ood_lab.evaluation.published.numbers import SETTINGS, SHIPPED
from ood_lab.run.commandline.composition import composed, jobs_of
from ood_lab.run.commandline.resolvers import register_resolvers
from ood_lab.run.job.stages import StageLine
from ood_lab.scripts import CONF

ENTRIES = yaml.safe_load((SHIPPED / SETTINGS).read_text(encoding="utf-8"))
PAPERS = {"ShiftedBronzes", "IS-OOD", "OODBench", "ORIC", "ODE"}
ABSENT = object()
EXPERIMENT = re.compile(r"experiment=(\w+)")


def compositions(entry):
    """The configuration of the command line, and of each stage that a row is about, by name."""
    register_resolvers()
    line = shlex.split(entry["line"])
    if not any("detector" in row["setting"] for row in entry["rows"]):
        line.append("detector=[]")  # to compose all of them is half of the time
    files = [CONF / "experiment" / f"{name}.yaml" for name in EXPERIMENT.findall(entry["line"])]
    if any("stages" in OmegaConf.load(file) for file in files):
        line = [word for word in line if word.startswith(("experiment=", "study."))]
    cfg = composed(entry["script"], line)
    found = {None: cfg}
    for name in {row["stage"] for row in entry["rows"] if "stage" in row}:
        script, overrides, _ = StageLine(cfg, name).line({})
        found[name] = composed(script, jobs_of(overrides)[0])
    return found


def composed_value(cfg, setting):
    """The value of a key, or of ``module:NAME``; of a group its keys, "???" where it is missing."""
    if ":" in setting:
        value = resolve_name(setting)
        return [each.name for each in value()] if callable(value) else value
    place, _, key = setting.rpartition(".")
    node = OmegaConf.select(cfg, place) if place else cfg
    if isinstance(node, ListConfig):  # a word of a stage is resolved when the stage begins
        value = OmegaConf.to_container(node, resolve=not place.startswith("stages."))[int(key)]
    else:
        assert key in set(node), f"{setting} is not in the configuration"
        value = "???" if OmegaConf.is_missing(node, key) else node[key]
    return list(value) if isinstance(value, DictConfig | ListConfig) else value


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry["line"].split(" data.")[0])
def test_an_experiment_composes_the_settings_of_its_paper(entry):
    found = compositions(entry)
    wrong = {}
    for row in entry["rows"]:
        value = composed_value(found[row.get("stage")], row["setting"])
        if value != row.get("here", row["value"]):
            wrong[row.get("stage"), row["setting"]] = value
    assert not wrong
    for cfg in found.values():
        check_composed(cfg)


def test_every_row_names_its_place_and_every_deviation_its_reason():
    for entry in ENTRIES:
        assert entry["paper"] in PAPERS
        for row in entry["rows"]:
            assert {*row} <= {"stage", "setting", "value", "place", "here", "reason"}
            assert row["place"]
            assert ("here" in row) == bool(row.get("reason"))
            assert row.get("here", ABSENT) != row["value"]


def test_an_experiment_is_a_paper_or_says_that_it_is_a_demo():
    """Those of OpenOOD and those of one's own images are neither."""
    others = {"smoke", "shift_report"}
    held = of_papers()
    for file in sorted((CONF / "experiment").glob("*.yaml")):
        if not file.stem.startswith("openood_") and file.stem not in held | others:
            assert "demo" in file.read_text(encoding="utf-8").lower(), file
