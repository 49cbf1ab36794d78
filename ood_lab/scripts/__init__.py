"""The two scripts and the configuration, and the console commands that run them.

In a clone, ``train.py``, ``eval.py`` and ``conf/`` lie beside the package; a wheel has them in this
folder (``hatch_build.py``). The commands do what ``python train.py`` and ``python eval.py`` do.
"""

import runpy
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

_HERE = Path(__file__).resolve().parent
#: Folder of ``train.py``, ``eval.py`` and ``conf/``.
HOME = _HERE if (_HERE / "conf").is_dir() else _HERE.parents[1]
CONF = HOME / "conf"


def command(name: str) -> str:
    """How a user calls ``train`` or ``eval`` here: the script of a clone, or the command."""
    return f"ood-lab-{name}" if HOME == _HERE else f"python {name}.py"


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
