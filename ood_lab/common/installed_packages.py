"""Which packages are installed, their versions, and the code of the user that is in none."""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Iterable, Iterator
from importlib.machinery import PathFinder
from importlib.metadata import PackageNotFoundError, version
from importlib.util import resolve_name
from pathlib import Path

from ood_lab.common.errors import UserError

#: Packages that change only with their version.
LIBRARIES = sys.stdlib_module_names | {
    "ood_lab",
    "torch",
    "torchvision",
    "timm",
    "transformers",
    "open_clip",
    "torchmetrics",
    "lightning",
    "lightning_fabric",
    "lightning_utilities",
    "pytorch_lightning",
    "numpy",
    "scipy",
    "PIL",
    "safetensors",
    "tokenizers",
    "huggingface_hub",
    "omegaconf",
}


def package_versions(names: Iterable[str]) -> dict[str, str]:
    """Installed versions by package, for the record."""
    versions = {}
    for name in names:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "not installed"
    return versions


def need(package: str, extra: str, what: str) -> None:
    """Rejects work for which an optional package is missing.

    Raises:
        UserError: with the command that installs it.
    """
    if importlib.util.find_spec(package) is None:
        raise UserError(f"{what} needs the package {package}: pip install 'ood_lab[{extra}]'")


def is_library(module: str) -> bool:
    """Whether a module belongs to a package whose version says what it computes."""
    return module.partition(".")[0] in LIBRARIES


def local_sources(module: str, file: Path) -> dict[str, Path]:
    """The file of a module, and those of the modules that it imports from where it is, by name.

    Imports are read, not made; those in functions count, too.

    Args:
        module: dotted name.
        file: where it is.
    """
    parts = module.split(".")[: None if file.stem == "__init__" else -1]
    root = Path(file.parent, *(".." for _ in parts)).resolve()
    shared = root.name in ("site-packages", "dist-packages")  # by packages of other people
    sources, todo = {}, {module: file} | _with_packages(root, ".".join(parts))
    while todo:
        name, path = todo.popitem()
        sources[name] = path
        package = name if path.stem == "__init__" else name.rpartition(".")[0]
        for imported in _imports(path, package) if path.suffix == ".py" else ():
            top = imported.partition(".")[0]
            if not is_library(top) and not (shared and top != module.partition(".")[0]):
                files = _with_packages(root, imported)
                todo |= {name: files[name] for name in files.keys() - sources.keys()}
    return sources


def target_sources(target: str) -> dict[str, Path]:
    """:func:`local_sources` of a ``_target_``, which is not imported; empty of libraries."""
    top = target.partition(".")[0]
    if is_library(top) or not (spec := PathFinder.find_spec(top)):
        return {}
    places = [*(spec.submodule_search_locations or ()), spec.origin or ""]
    modules = _with_packages(Path(places[0]).parent, target)
    if not modules:
        return {}
    module, file = list(modules.items())[-1]
    return local_sources(module, file)


def _with_packages(root: Path, name: str) -> dict[str, Path]:
    """The files of a module below ``root`` and of the packages that it is in, as far as there."""
    files: dict[str, Path] = {}
    place, parts = root, name.split(".")
    for end, part in enumerate(parts, start=1):
        place = place / part
        for file in (place / "__init__.py", place.with_name(f"{part}.py")):
            if part and file.is_file():
                files[".".join(parts[:end])] = file
                break
    return files


def _imports(file: Path, package: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            base = resolve_name(base, package) if node.level and package else base.strip(".")
            yield from (f"{base}.{alias.name}" for alias in node.names)
