"""How long a command takes before it says anything, against importing Hydra and pandas.

    python tests/benchmarks/startup.py [RUN]     # RUN: a finished run folder

A RUN is shown again, compared, and scored again from its bank. What builds a network or data pays
for importing Lightning, which is told for comparison.

Each command runs several times in turn with the reference, so that a busy machine slows both; the
fastest of each counts. Run it on an idle machine. What needs no network has to take less than
four times the reference: the exit status is 1 where one of these takes longer.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = [sys.executable, "-c", "import hydra, pandas"]
BOUND = 4.0
#: They load Lightning.
UNBOUND = ("import lightning", "eval.py ckpt=RUN, with figures and page")


def seconds(command: Sequence[str]) -> float:
    """Wall-clock time of one call, whatever its exit status."""
    start = time.perf_counter()
    subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    return time.perf_counter() - start


def shown_again(run: Path) -> list[str]:
    """The command line of a run that was given no data of its own."""
    config = yaml.safe_load((run / "config.yaml").read_text())
    outputs = run.parents[2]
    script = "eval.py" if config.get("ckpt") else "train.py"
    ckpt = [f"ckpt={config['ckpt']}"] if config.get("ckpt") else []
    return [sys.executable, script, *ckpt, f"paths.outputs={outputs}"]


def scored_again(run: Path, outputs: str) -> list[str]:
    """The command line that scores a run again, from its bank, into another folder."""
    places = [f"paths.outputs={outputs}", f"paths.features={run.parents[2]}/features"]
    return [sys.executable, "eval.py", f"ckpt={run}", *places, "force=true"]


def main() -> None:
    """Prints one line per command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", nargs="?", type=Path, help="finished run folder")
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    commands = {
        "import lightning": [sys.executable, "-c", "import lightning"],
        "train.py --help": [sys.executable, "train.py", "--help"],
        "a mistyped key": [sys.executable, "train.py", "sed=1"],
    }
    if given.run:
        run = given.run.absolute()
        outputs = tempfile.mkdtemp()
        compare = ["task=compare", f"runs={run.parents[2]}", f"paths.outputs={outputs}"]
        commands["a finished run shown again"] = shown_again(run)
        commands["eval.py ckpt=RUN, with figures and page"] = scored_again(run, outputs)
        commands["task=compare"] = [sys.executable, "eval.py", *compare]
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    best = dict.fromkeys(("reference", *commands), float("inf"))
    for _ in range(given.repeats):
        for name, command in {"reference": REFERENCE, **commands}.items():
            best[name] = min(best[name], seconds(command))
    print(f"import hydra, pandas: {best['reference']:.2f} s")
    for name in commands:
        print(f"{name}: {best[name]:.2f} s, {best[name] / best['reference']:.1f} x")
    bound = BOUND * best["reference"]
    sys.exit(any(best[name] > bound for name in commands if name not in UNBOUND))


if __name__ == "__main__":
    main()
