"""The two scripts and the configuration, and the console commands that run them.

In a clone, ``train.py``, ``eval.py`` and ``conf/`` are next to the package; a wheel has them in
this folder (``hatch_build.py``). The commands act as ``python train.py`` and ``python eval.py``.
"""

import os
import runpy
import sys
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from ood_lab.version import __version__

_HERE = Path(__file__).resolve().parent
#: Folder of ``train.py``, ``eval.py`` and ``conf/``.
HOME = _HERE if (_HERE / "conf").is_dir() else _HERE.parents[1]
CONF = HOME / "conf"
#: Names the folder of the user's own YAML files (``--config-dir``), for the processes of a job too.
OWN_CONF = "OOD_LAB_CONFIG_DIR"
_USAGE = """usage: ood-lab train ... | ood-lab eval ... | ood-lab score FILE.onnx IMAGES...

ood-lab train --help and ood-lab eval --help show what there is to choose."""


def conf_folders() -> list[Path]:
    """Where YAML files are looked for: :data:`CONF`, then the user's own folder, if any."""
    own = os.environ.get(OWN_CONF)
    return [CONF, Path(own)] if own else [CONF]


def conf_files(group: str) -> list[Path]:
    """The YAML files of a group, sorted; of two with the same name, the first folder's counts."""
    found: dict[str, Path] = {}
    for place in [folder / group for folder in conf_folders()]:
        for file in place.glob("*.yaml") if os.path.isdir(place) else ():
            found.setdefault(file.stem, file)
    return [found[name] for name in sorted(found)]


def is_group(key: str) -> bool:
    """Whether files are chosen by this key."""
    return key != "" and any(os.path.isdir(folder / key) for folder in conf_folders())


def find_own_classes() -> None:
    """Lets ``_target_`` name classes in modules of the current folder, behind all packages."""
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())


def command(name: str) -> str:
    """How a user calls ``train`` or ``eval`` here: the script of a clone, or the command."""
    return f"ood-lab-{name}" if HOME == _HERE else f"python {name}.py"


def main() -> None:
    """``ood-lab train ...``, ``ood-lab eval ...`` and ``ood-lab score ...``.

    Raises:
        SystemExit: 2 = there is no such command.
    """
    name = sys.argv.pop(1) if len(sys.argv) > 1 else "--help"
    if name == "score":
        from ood_lab import deploy

        deploy.main()
        return
    if name not in ("train", "eval"):
        print(__version__ if name == "--version" else _USAGE)
        raise SystemExit(0 if name in ("-h", "--help", "--version") else 2)
    run_script(name)


def train() -> None:
    """``ood-lab-train``."""
    run_script("train")


def evaluate() -> None:
    """``ood-lab-eval``."""
    run_script("eval")


def run_script(name: str) -> None:
    """Runs ``train.py`` or ``eval.py`` with the arguments in ``sys.argv``.

    As ``__main__``, so that other processes (of DDP, of a sweep) start the script itself.

    Raises:
        SystemExit: the script ended with another status than 0.
    """
    runpy.run_path(str(HOME / f"{name}.py"), run_name="__main__")


def script_main(name: str) -> Callable[[], Any]:
    """The ``main`` of ``train.py`` or ``eval.py``, for a process that another script has begun."""
    loader = SourceFileLoader(name, str(HOME / f"{name}.py"))
    script = ModuleType(name)
    loader.exec_module(script)
    main: Callable[[], Any] = script.main
    return main
