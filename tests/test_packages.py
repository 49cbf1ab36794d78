"""Which package may import which (the table of the architecture)."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import ood_lab

ROOT = Path(ood_lab.__file__).parent
PACKAGES = {p.name for p in ROOT.iterdir() if p.is_dir() and (p / "__init__.py").exists()}
HEAVY = {"hydra", "omegaconf", "wandb"}
#: What puts the others together: none of them knows it, or the Workspace.
ABOVE = {"run", "tasks"}
FORBIDDEN = {
    "metrics": PACKAGES - {"metrics"} | HEAVY,
    "neighbours": PACKAGES - {"neighbours"} | HEAVY,
    "detectors": HEAVY | {"data", "report"},
    "shift": HEAVY | {"data", "report"},
    "synthesis": HEAVY | {"data", "report"},
    "features": HEAVY | {"data", "report"},
    "models": HEAVY | {"data", "report"},
    "clip": HEAVY | {"data", "report"},
    "prompts": HEAVY | {"data", "report"},
    "data": HEAVY | {"models", "detectors", "shift", "lvlm"},
    "lvlm": HEAVY | {"detectors"},
    "report": {"hydra", "omegaconf", "models", "data"},
    "evaluation": HEAVY,
    "tasks": HEAVY,
}
#: Files of packages that know no data, but for these, which look at a whole data set.
OF_DATA_SETS = {
    "shift/agreement.py",
    "shift/encoder.py",
    "synthesis/contents.py",
    "synthesis/exemplars.py",
    "synthesis/main_objects.py",
}


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names = [f"{node.module}.{a.name}" for a in node.names]
        for name in names:
            parts = name.split(".")
            found.add(parts[1] if parts[0] == "ood_lab" and len(parts) > 1 else parts[0])
    return found


@pytest.mark.parametrize("package", sorted(PACKAGES & FORBIDDEN.keys()))
def test_package_imports_only_what_it_may(package):
    for path in (ROOT / package).rglob("*.py"):
        allowed = {"data"} if str(path.relative_to(ROOT)) in OF_DATA_SETS else set()
        above = set() if package == "tasks" else ABOVE
        assert not imports(path) & (FORBIDDEN[package] | above) - allowed, path


def test_every_task_has_one_file_and_one_yaml():
    yamls = {p.stem for p in (ROOT.parent / "conf" / "task").glob("*.yaml")}
    # `_benchmark` is what three of them share.
    assert {p.stem for p in (ROOT / "tasks").glob("*.py")} - {"__init__", "_benchmark"} == yamls


def test_the_command_line_loads_no_framework():
    heavy = ("torch", "lightning", "timm", "open_clip", "transformers", "wandb", "matplotlib")
    code = f"import sys, ood_lab.run; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


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
