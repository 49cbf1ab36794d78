"""Outside the clone: a wheel has all it needs, and its commands do what the scripts do."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pandas as pd
import pytest
import yaml
from cli import ROOT, run_folders
from packaging.metadata import Metadata

import ood_lab

TINY = ("experiment=smoke", "detector=[msp]", "logger=none", "trainer.accelerator=cpu")


def build(source: Path, target: Path, *kinds: str) -> list[Path]:
    targets = [option for kind in kinds for option in ("-t", kind)]
    command = [sys.executable, "-m", "hatchling", "build", *targets, "-d", str(target)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    return sorted(target.iterdir())


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The sdist and the wheel of this repository."""
    wheel, sdist = build(ROOT, tmp_path_factory.mktemp("dist"), "sdist", "wheel")
    return sdist, wheel


def test_the_wheel_holds_package_configuration_and_scripts(built):
    names = {n for n in zipfile.ZipFile(built[1]).namelist() if n.startswith("ood_lab/")}
    listed = ["git", "ls-files", "-co", "--exclude-standard", "ood_lab", "conf", "train.py"]
    files = subprocess.run([*listed, "eval.py"], cwd=ROOT, check=True, capture_output=True)
    ours = files.stdout.decode().split()
    assert names == {n if n.startswith("ood_lab/") else f"ood_lab/scripts/{n}" for n in ours}


def test_both_say_what_the_package_index_asks_for(built):
    """One version everywhere, valid metadata, a README that renders, and types for other tools."""
    sdist, wheel = built
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        of_wheel = archive.read(name)
        assert "ood_lab/py.typed" in archive.namelist()
    with tarfile.open(sdist) as archive:
        stem = sdist.name.removesuffix(".tar.gz")
        of_sdist = archive.extractfile(f"{stem}/PKG-INFO").read()
    assert of_wheel == of_sdist
    said = Metadata.from_email(of_wheel, validate=True)
    assert str(said.version) == ood_lab.__version__
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == ood_lab.__version__
    assert said.license_expression == "Apache-2.0"
    assert said.description_content_type == "text/markdown"
    assert said.description.strip() == (ROOT / "README.md").read_text().strip()
    assert "Typing :: Typed" in said.classifiers


def test_twine_would_upload_them(built):
    pytest.importorskip("twine", reason="twine is in the extra dev")
    check = [sys.executable, "-m", "twine", "check", "--strict", *map(str, built)]
    said = subprocess.run(check, capture_output=True, text=True)
    assert said.returncode == 0, said.stdout


def test_the_sdist_builds_the_same_wheel(built, tmp_path):
    sdist, wheel = built
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "source", filter="data")
    (unpacked,) = (tmp_path / "source").iterdir()
    (again,) = build(unpacked, tmp_path / "dist", "wheel")
    assert again.name == wheel.name
    assert again.read_bytes() == wheel.read_bytes()


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory):
    """A fresh environment with the wheel, resolved under the constraints without a network.

    The dependencies are those of this environment: links to all it has but this project.
    """
    home = tmp_path_factory.mktemp("fresh")
    venv.create(home / "venv", with_pip=True)
    (home / "dependencies").mkdir()
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if "ood_lab" not in entry.name and entry.suffix != ".pth":
            (home / "dependencies" / entry.name).symlink_to(entry)
    (packages,) = (home / "venv/lib").glob("python*/site-packages")
    (packages / "dependencies.pth").write_text(str(home / "dependencies"))
    pip = [home / "venv/bin/python", "-m", "pip"]
    # Python 3.11 gives every new environment an old setuptools, which would hide the linked one.
    subprocess.run([*pip, "uninstall", "--yes", "setuptools"], check=True, capture_output=True)
    install = [*pip, "install", "--no-index", "--constraint", ROOT / "constraints.txt"]
    subprocess.run([*install, f"{built[1]}[sweep]"], check=True, capture_output=True)
    return home / "venv/bin"


@pytest.mark.slow
def test_the_commands_do_what_the_scripts_do(installed, tmp_path):
    """In an empty folder: train, evaluate, sweep in parallel, two processes, help, an error."""

    def call(command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        line = [str(installed / command), *arguments]
        found = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert "Traceback" not in found.stderr
        return found

    assert "\n  predict " in call("ood-lab", "eval", "--help").stdout
    assert call("ood-lab", "train", *TINY).returncode == 0
    (run,) = run_folders(tmp_path)
    assert run.relative_to(tmp_path).parts[:2] == ("outputs", "smoke")
    assert (run / "report.html").stat().st_size > 100_000
    evaluated = call("ood-lab-eval", f"ckpt={run}", "detector=[msp]", "metrics.n_bootstrap=50")
    assert "ID accuracy" in evaluated.stdout
    trained, again = (pd.read_csv(f / "results.csv") for f in run_folders(tmp_path))
    of_sets = [t[t.shift_level.notna()].dropna(axis=1) for t in (trained, again)]
    pd.testing.assert_frame_equal(*(t.reset_index(drop=True) for t in of_sets))

    sweep = ("-m", f"ckpt={run}", "detector=msp,mls", "hydra=joblib", "task.report=false")
    assert call("ood-lab-eval", *sweep, "name=sweep").returncode == 0
    assert len(run_folders(tmp_path / "outputs/sweep")) == 2
    two = ("trainer=ddp_cpu", "seed=1", "task.report=false")
    assert call("ood-lab-train", *TINY[:3], *two).returncode == 0
    assert run_folders(tmp_path)[-1].name == "seed=1"

    assert "  ood-lab-eval ckpt=RUN" in call("ood-lab-train", "--help").stdout
    wrong = call("ood-lab-eval", "detector=[knnn]")
    assert wrong.returncode == 1
    assert "knn" in wrong.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"outputs"}


@pytest.mark.slow
@pytest.mark.parametrize(("resolution", "python"), [("lowest-direct", "3.11"), ("highest", None)])
def test_the_quickstart_works_with_the_oldest_and_the_newest_dependencies(
    built, tmp_path, resolution, python
):
    """Fetches whole PyTorch builds; ``UV_TORCH_BACKEND=cpu`` takes the small ones."""
    uv = shutil.which("uv") or pytest.skip("uv is not installed")
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}

    def call(*line: object) -> subprocess.CompletedProcess[str]:
        command = [str(word) for word in line]
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True
        )

    made = call(uv, "venv", "--python", python or sys.executable, "venv")
    assert made.returncode == 0, made.stderr
    install = (uv, "pip", "install", "--python", "venv/bin/python", "--resolution", resolution)
    asked = call(*install, "--dry-run", built[1])
    if "Failed to fetch" in asked.stderr:
        pytest.skip("the package index cannot be reached")
    installed = call(*install, built[1])
    assert installed.returncode == 0, installed.stderr
    ran = call("venv/bin/ood-lab-train", "debug=true", "logger=none", "trainer.accelerator=cpu")
    assert ran.returncode == 0, ran.stderr[-3000:]
    (page,) = (tmp_path / "outputs/debug").rglob("report.html")  # a debug run is never DONE
    assert page.stat().st_size > 100_000
