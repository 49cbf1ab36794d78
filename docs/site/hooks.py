"""What the site has beyond docs/: notebooks, changes, ``--help``, formulas as MathML."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from latex2mathml.converter import convert

sys.path.insert(0, str(Path(__file__).parent))
import notebooks

if TYPE_CHECKING:  # tests look at the pages without mkdocs
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

DOCS = Path(__file__).parents[1]
ROOT = DOCS.parent
_OOD_LAB = "from ood_lab.scripts import main; main()"
_COMMANDS = {
    "python train.py --help": ["train.py", "--help"],
    "python eval.py --help": ["eval.py", "--help"],
    "ood-lab --help": ["-c", _OOD_LAB, "--help"],
}


@cache
def pages() -> dict[str, str]:
    """Markdown of every page that is not in docs/, by its path on the site."""
    copies = {
        page.lower(): (ROOT / page)
        .read_text(encoding="utf-8")
        .replace("](docs/", "](")
        .replace("](CONTRIBUTING", "](contributing")
        for page in ("CHANGELOG.md", "CONTRIBUTING.md")
    }
    return {**notebooks.pages(), **copies, "reference/command-line.md": _command_line()}


def _command_line() -> str:
    """What ``--help`` prints."""
    text = "# Command line\n\nAll settings: [configuration](../configuration/index.md).\n"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "90", "NO_COLOR": "1"}
    for command, arguments in _COMMANDS.items():
        line = [sys.executable, *arguments]
        output = subprocess.check_output(line, cwd=ROOT, env=environment, text=True).rstrip()
        text += f"\n## `{command}`\n\n```text\n{output}\n```\n"
    return text


def below(folder: str) -> list[str]:
    """Pages of a folder, its index first."""
    written = [page.relative_to(DOCS).as_posix() for page in (DOCS / folder).glob("*.md")]
    found = [*written, *(path for path in pages() if path.startswith(f"{folder}/"))]
    return sorted(found, key=lambda path: (not path.endswith("/index.md"), path))


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Fills an entry ``NAME: [FOLDER/]`` of the navigation with the pages of the folder."""

    def filled(entry: Any) -> Any:
        if isinstance(entry, dict):
            return {key: filled(one) for key, one in entry.items()}
        if isinstance(entry, list):
            return [
                page
                for one in entry
                for page in (
                    below(one.rstrip("/"))
                    if isinstance(one, str) and one.endswith("/")
                    else [filled(one)]
                )
            ]
        return entry

    config.nav = filled(config.nav)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that are not in docs/."""
    from mkdocs.structure.files import File

    for path, text in pages().items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Formulas become MathML; links to notebooks lead to their pages."""
    text = re.sub(r"^```math\n(.*?)\n```$", _block, markdown, flags=re.M | re.S)
    text = re.sub(r"\$`([^`]*)`\$", lambda m: _mathml(m[1], "inline"), text)
    return re.sub(r"\.\./examples/(\w+)\.ipynb", r"tutorials/notebooks/\1.md", text)


def _block(found: re.Match[str]) -> str:
    return _mathml(found[1], "block")


def _mathml(tex: str, display: str) -> str:
    plain = re.sub(r"\\[Bb]ig+(?=[^a-zA-Z])", "", " ".join(tex.split()))
    return convert(plain.replace("\\arg\\", "\\mathrm{arg}\\,\\"), display=display)


def on_page_content(html: str, **_: Any) -> str:
    """``:class:`Name``` of a docstring is a name."""
    return re.sub(r":(?:class|func|meth|mod|attr|data):(?=<code>)", "", html)
