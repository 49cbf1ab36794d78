"""``ood-lab``: one command for the two scripts, and for what there is to choose from.

ood-lab train ...      what ``python train.py ...`` does
ood-lab eval ...       what ``python eval.py ...`` does
ood-lab score FILE ... p-values and decisions of an exported ONNX file
ood-lab tasks          what can be done, a line each
ood-lab detectors      every detector: what it reads, and its source
ood-lab doctor         versions, devices, caches, accounts, free disk
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ood_lab.common.console import print_anywhere
from ood_lab.common.hints import suggestion
from ood_lab.common.installed_packages import package_versions
from ood_lab.deploy import main as score
from ood_lab.scripts import conf_files, evaluate, train
from ood_lab.version import __version__

if TYPE_CHECKING:
    from ood_lab.detectors import Detector

#: What a report of a problem should say of the machine.
_PACKAGES = (
    *("torch", "torchvision", "lightning", "hydra-core", "timm", "open_clip_torch", "pytorch-ood"),
    *("transformers", "datasets", "pandas", "pyarrow", "matplotlib", "wandb"),
)


def main() -> None:
    """``ood-lab``.

    Raises:
        SystemExit: with the status of the command; 2 = there is no such command.
    """
    print_anywhere()
    name, *rest = sys.argv[1:] or ["--help"]
    if name in ("-h", "--help"):
        print(_help())
        return
    if name == "--version":
        print(f"ood_lab {__version__}")
        return
    if name in ("-sc", "--shell-completion"):
        _complete(*rest)
        return
    if name not in COMMANDS:
        _stop(f"there is no command '{name}': {suggestion(name, COMMANDS, shown=len(COMMANDS))}")
    run, _ = COMMANDS[name]
    if name not in (*SCRIPTS, "score") and rest:
        if rest in (["-h"], ["--help"]):
            print(f"ood-lab {name}: {COMMANDS[name][1]}")
            return
        _stop(f"ood-lab {name} takes no arguments, not '{rest[0]}'")
    sys.argv[1:] = rest
    try:
        run()
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def tasks() -> None:
    """Prints every task with the first line of its YAML."""
    from ood_lab.run.commandline.resolvers import first_comment

    lines = {file.stem: first_comment(file) for file in conf_files("task")}
    _print_table(lines)
    print("\nood-lab eval task=NAME ...; ood-lab eval --help, and docs/, say more")


def detectors() -> None:
    """Prints every detector with what it reads and its source."""
    from hydra.utils import get_class
    from omegaconf import OmegaConf

    rows = [("detector", "reads", "source")]
    for file in conf_files("detector"):
        for name, node in (OmegaConf.select(OmegaConf.load(file), "detector") or {}).items():
            detector: type[Detector] = get_class(node["_target_"])
            rows.append((str(name), ", ".join(detector.reads), detector.source))
    widths = [max(len(row[i]) for row in rows) for i in range(2)]
    for name, reads, source in rows:
        print(f"{name.ljust(widths[0])}  {reads.ljust(widths[1])}  {source}")
    print("\nood-lab eval ckpt=RUN detector=[NAME,...]; formulas: docs/reference/detectors.md")


def doctor() -> None:
    """Prints what a report of a problem should say: nothing is changed, and nothing is sent."""
    _print_table(dict(_machine()))


def _machine() -> Iterator[tuple[str, str]]:
    yield "ood_lab", f"{__version__}, {Path(__file__).resolve().parents[2]}"
    yield "python", f"{platform.python_version()}, {sys.executable}"
    yield "system", f"{platform.platform()}, {os.cpu_count()} cores"
    yield from package_versions(_PACKAGES).items()
    yield from _devices()
    wandb = bool(os.environ.get("WANDB_API_KEY")) or _in_netrc("api.wandb.ai")
    yield "W&B account", "found" if wandb else "none: logger=csv, or wandb login"
    token = Path(os.environ.get("HF_HOME", "~/.cache/huggingface")).expanduser() / "token"
    hub = bool(os.environ.get("HF_TOKEN")) or token.is_file()
    yield "Hugging Face account", "found" if hub else "none: only public models"
    yield "OPENAI_API_KEY", "set" if os.environ.get("OPENAI_API_KEY") else "not set"
    caches = {
        "Hugging Face cache": os.environ.get("HF_HOME", "~/.cache/huggingface"),
        "torch cache": os.environ.get("TORCH_HOME", "~/.cache/torch"),
        "outputs": "outputs",
    }
    for name, place in caches.items():
        yield name, _folder(Path(place).expanduser())
    yield "free disk here", f"{shutil.disk_usage('.').free / 2**30:,.1f} GiB"


def _devices() -> Iterator[tuple[str, str]]:
    if importlib.util.find_spec("torch") is None:
        return
    import torch

    yield "threads of torch", str(torch.get_num_threads())
    if not torch.cuda.is_available():
        mps = torch.backends.mps.is_available()
        yield "GPU", "Apple's, through MPS" if mps else "none that torch can use"
    for place in range(torch.cuda.device_count()):
        found = torch.cuda.get_device_properties(place)
        yield f"GPU {place}", f"{found.name}, {found.total_memory / 2**30:.0f} GiB"


def _in_netrc(host: str) -> bool:
    file = Path(os.environ.get("NETRC", "~/.netrc")).expanduser()
    return file.is_file() and host in file.read_text(errors="replace")


def _folder(place: Path) -> str:
    """Where it is, and the size of the files below it."""
    if not place.is_dir():
        return f"{place}, not there yet"
    files = [Path(at) / name for at, _, names in os.walk(place) for name in names]
    size = sum(file.lstat().st_size for file in files)
    return f"{place}, {size / 2**30:,.1f} GiB"


def _print_table(rows: dict[str, str]) -> None:
    width = max(map(len, rows))
    for name, text in rows.items():
        print(f"{name.ljust(width)}  {text}".rstrip())


def _help() -> str:
    lines = "\n".join(f"  {name.ljust(10)} {words}" for name, (_, words) in COMMANDS.items())
    return (
        f"usage: ood-lab COMMAND ...\n\n{lines}\n\n"
        "ood-lab train --help and ood-lab eval --help show what there is to choose.\n"
        'Completion in bash: eval "$(ood-lab --shell-completion install=bash)"'
    )


def _complete(action: str = "", *others: str) -> None:
    """What the shell asks: Hydra's answer, which is about the words after ``train`` or ``eval``."""
    program, _, words = os.environ.get("COMP_LINE", "").strip("\n").lstrip().partition(" ")
    command, begun, words = words.lstrip().partition(" ")
    if action.startswith("query=") and command not in SCRIPTS:
        print("" if begun else " ".join(COMMANDS))
        return
    if action.startswith("query=") and not begun:
        print(command)
        return
    os.environ["COMP_LINE"] = f"{program} {words}"
    sys.argv[1:] = ["--shell-completion", action, *others]
    COMMANDS[command if command in SCRIPTS else "eval"][0]()
    if action == "install=bash":  # Hydra has said it for python train.py and python eval.py alone
        options, ours = "-o nospace -o default", "ood-lab ood-lab-{train,eval}"
        print(f"complete {options} -F hydra_bash_completion {ours}")


def _stop(message: str) -> None:
    print(f"error: {message}", file=sys.stderr)
    raise SystemExit(2)


#: Commands that hand their arguments on.
SCRIPTS = ("train", "eval")
COMMANDS: dict[str, tuple[Callable[[], None], str]] = {
    "train": (train, "train a network, measure the shift of the OOD sets, score detectors"),
    "eval": (evaluate, "any task on a network that has weights"),
    "score": (score, "p-values and decisions of images by an exported file, FILE.onnx IMAGES..."),
    "tasks": (tasks, "what eval can do, a line each"),
    "detectors": (detectors, "every detector with what it reads and its source"),
    "doctor": (doctor, "versions, devices, accounts, caches, free disk"),
}
