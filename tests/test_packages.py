"""Which package may import which (the table of the architecture)."""

import ast
import graphlib
import os
import re
import subprocess
import sys
import tomllib
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
import yaml

import ood_lab
from ood_lab import detectors

ROOT = Path(ood_lab.__file__).parent
PACKAGES = {p.name for p in ROOT.iterdir() if p.is_dir() and (p / "__init__.py").exists()}
HEAVY = {"hydra", "omegaconf", "wandb"}
#: What puts the others together: none of them knows it, or the Workspace.
ABOVE = {"run", "tasks", "api"}
#: Knows nothing of the field, and what all tables have in common: everyone may import these.
SHARED = {"common", "schema"}
FORBIDDEN = {
    "common": PACKAGES - {"common"} | HEAVY,
    "schema": PACKAGES - SHARED | HEAVY,
    "metrics": PACKAGES - {"metrics"} - SHARED | HEAVY,
    "neighbours": PACKAGES - {"neighbours"} - SHARED | HEAVY,
    "report": PACKAGES - {"report", "metrics"} - SHARED | {"hydra", "omegaconf"},
    "detectors": HEAVY | {"data", "report"},
    "shift": HEAVY | {"data", "report"},
    "synthesis": HEAVY | {"data", "report"},
    "features": HEAVY | {"data", "report"},
    "models": HEAVY | {"data", "report"},
    "clip": HEAVY | {"data", "report"},
    "prompts": HEAVY | {"data", "report"},
    "data": HEAVY | {"models", "detectors", "shift", "lvlm", "builtin"},
    "builtin": HEAVY | {"detectors", "shift", "synthesis", "prompts", "features", "evaluation"},
    "lvlm": HEAVY | {"detectors"},
    "evaluation": HEAVY,
    "tasks": HEAVY,
}
#: Files of packages that know no data, but for these, which look at a whole dataset.
OF_DATASETS = {
    "shift/level_agreement.py",
    "synthesis/imagenet21k_classes.py",
    "synthesis/transfer_images.py",
}


#: Packages from the lowest floor to the highest: each imports those below it alone. ``helpers`` are
#: the files beside the packages; ``ood_lab`` is the package itself, which offers the API.
FLOORS = (
    {"helpers", "common"},
    {"schema", "scripts"},
    {"metrics", "models", "neighbours"},
    {"clip", "data", "features", "report"},
    {"detectors", "shift"},
    {"prompts", "synthesis"},
    {"lvlm"},
    {"evaluation"},
    {"builtin"},
    {"run"},
    {"api", "tasks"},
    {"ood_lab"},
)
#: Rooms of packages, likewise; a file beside them is a room of its own.
ROOMS = {
    "lvlm": (
        {"annotations", "parsers"},
        {"questions", "concepts"},
        {"chat"},
        {"answers"},
        {"scoring", "image_text"},
        {"pages"},
        {"captions", "statistics", "training"},
        {"image_generation"},
        {"benchmark"},
        {"benchmarks"},
    ),
    "report": (
        {"rendering"},
        {"figures"},
        {"verdict"},
        {"results_lookup"},
        {"shift"},
        {"detection", "leaderboard"},
    ),
    "run": (
        {"commandline"},
        {"building"},
        {"tracking"},
        {"job"},
        {"__init__"},
    ),
}
#: Files of one kind, one of each: there may be any number of them in a folder.
ALIKE = {"detectors", "tasks"}
MOST = 20
#: Words that say nothing of what is in a file.
# fmt: off
NO_NAMES = {
    "against", "another", "anew", "apart", "asked", "asking", "belongs", "beside", "copies",
    "derived", "doubts", "fields", "following", "found", "gathered", "given", "gone", "hard",
    "heard", "in_passing", "judged", "kept", "known", "left", "levelled", "like", "made", "making",
    "matched", "meant", "misc", "moved", "noted", "others", "ours", "over_models", "parts",
    "passing", "reading", "recorded", "said", "saved", "scored", "seen", "shown", "stuff", "theirs",
    "things_to_do", "told", "tools", "utils", "view", "ways", "whole", "wishes", "written",
}
# fmt: on


TASKS = ROOT.parent / "conf" / "task"


def modules() -> dict[str, Path]:
    """All files of the package, by what one imports them as."""
    found = {}
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        found[".".join(parts[: -1 if parts[-1] == "__init__" else None])] = path
    return found


MODULES = modules()


@cache  # every rule asks for every file
def imported(path: Path) -> set[str]:
    """Dotted names that a file imports anywhere, under ``TYPE_CHECKING`` too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {a.name for a in node.names}
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {f"{node.module}.{a.name}" for a in node.names}
    return found


def imports(path: Path) -> set[str]:
    """Packages of ours, and others, that a file imports."""
    parts = [name.split(".") for name in imported(path)]
    return {p[1] if p[0] == "ood_lab" and len(p) > 1 else p[0] for p in parts}


def imported_files(path: Path) -> set[str]:
    """Files of ours that a file imports, as names of :data:`MODULES`."""
    found = set()
    for name in imported(path):
        while name and name not in MODULES:
            name = name.rpartition(".")[0]
        found.add(name)
    return found - {"", "ood_lab"}  # the package itself is asked for its version


def package_of(module: str) -> str:
    first = module.partition(".")[2].partition(".")[0]
    return first if first in PACKAGES else "helpers" if first else "ood_lab"


def test_no_circle_between_files():
    arrows = {name: imported_files(path) - {name} for name, path in MODULES.items()}
    order = graphlib.TopologicalSorter(arrows)
    order.prepare()  # a CycleError names the files


def test_no_package_imports_one_above_it():
    floor = {package: height for height, packages in enumerate(FLOORS) for package in packages}
    upwards = {
        (name, other)
        for name, path in MODULES.items()
        for other in imported_files(path)
        if package_of(name) != package_of(other)
        and floor[package_of(name)] <= floor[package_of(other)]
    }
    assert not upwards


@pytest.mark.parametrize("package", ROOMS)
def test_no_room_imports_one_above_it(package):
    floor = {room: height for height, rooms in enumerate(ROOMS[package]) for room in rooms}
    here = f"ood_lab.{package}."
    rooms = {name: name.removeprefix(here).partition(".")[0] for name in MODULES if here in name}
    upwards = {
        (name, other)
        for name, room in rooms.items()
        for other in imported_files(MODULES[name]) & rooms.keys()
        if room != rooms[other] and floor[room] <= floor[rooms[other]]
    }
    assert not upwards


@pytest.mark.parametrize("package", sorted(PACKAGES & FORBIDDEN.keys()))
def test_package_imports_only_what_it_may(package):
    for path in (ROOT / package).rglob("*.py"):
        allowed = {"data"} if str(path.relative_to(ROOT)) in OF_DATASETS else set()
        above = set() if package == "tasks" else ABOVE
        assert not imports(path) & (FORBIDDEN[package] | above) - allowed, path


def test_no_other_package_knows_what_is_builtin():
    others = (p for p in ROOT.rglob("*.py") if "builtin" not in p.relative_to(ROOT).parts)
    assert not [p for p in others if "builtin" in imports(p)]


def test_every_task_has_one_file_and_one_yaml():
    targets = {}
    for path in TASKS.glob("*.yaml"):
        if module := re.search(
            r"^(?:  )?_target_: ood_lab\.tasks\.(\w+)\.", path.read_text(), re.M
        ):
            targets[path.stem] = module[1]
        else:  # published questions: the settings of another task, with a source of their own
            others = {p.stem for p in TASKS.glob("*.yaml")} - {path.stem}
            assert others & set(yaml.safe_load(path.read_text())["defaults"][:-1]), path
    assert targets == {name: name for name in targets}
    assert {p.stem for p in (ROOT / "tasks").glob("*.py")} - {"__init__"} == targets.keys()


def test_a_file_of_detectors_is_a_detector_or_the_contract():
    yamls = (ROOT.parent / "conf" / "detector").glob("*.yaml")
    used = re.findall(
        r"_target_: ood_lab\.detectors\.(\w+)\s", "".join(p.read_text() for p in yamls)
    )
    files = {p.stem for p in (ROOT / "detectors").glob("*.py")} - {"__init__", "base"}
    assert files == {getattr(detectors, name).__module__.rpartition(".")[2] for name in used}


def test_every_package_that_is_imported_is_declared():
    project = tomllib.loads((ROOT.parent / "pyproject.toml").read_text())["project"]
    lists = [project["dependencies"], *project["optional-dependencies"].values()]
    lines = [line for lines in lists for line in lines]
    declared = {re.split(r"[^\w-]", line)[0].replace("_", "-").lower() for line in lines}
    used = {name.partition(".")[0] for file in MODULES.values() for name in imported(file)}
    providers = packages_distributions()  # of what is installed
    for package in used & providers.keys() - {"ood_lab"}:
        assert declared & {name.replace("_", "-").lower() for name in providers[package]}, package


def test_few_files_stand_beside_the_packages():
    assert len(list(ROOT.glob("*.py"))) <= 3


def test_no_folder_is_too_long():
    lengths = {p: len(set(p.glob("*.py")) - {p / "__init__.py"}) for p in ROOT.rglob("*/")}
    long = {str(p.relative_to(ROOT)) for p, n in lengths.items() if n > MOST}
    assert long <= ALIKE


def test_every_folder_of_code_is_a_package_with_a_docstring():
    folders = {path.parent for path in ROOT.rglob("*.py")}
    for folder in folders:
        assert ast.get_docstring(ast.parse((folder / "__init__.py").read_text())), folder


def test_a_file_is_named_by_what_it_holds():
    assert not {name for name in MODULES if name.rpartition(".")[2] in NO_NAMES}


def test_the_command_line_loads_no_framework():
    heavy = ("torch", "lightning", "timm", "open_clip", "transformers", "wandb", "matplotlib")
    code = f"import sys, ood_lab.run; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.slow
@pytest.mark.parametrize(("given", "used"), [({}, True), ({"THP_MEM_ALLOC_ENABLE": "0"}, False)])
def test_large_tensors_lie_in_large_pages(given, used):
    setting = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if not setting.exists() or "[madvise]" not in setting.read_text():
        pytest.skip("large pages are not given to those who ask, as most Linux systems do")
    code = (
        "import ood_lab, torch; torch.ones(2**24);"
        "x = torch.ones(2**24); print(open('/proc/self/smaps_rollup').read())"
    )
    env = {k: v for k, v in os.environ.items() if k != "THP_MEM_ALLOC_ENABLE"} | given
    found = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
    )
    large = next(line for line in found.stdout.splitlines() if line.startswith("AnonHugePages"))
    assert (int(large.split()[1]) > 0) == used
