"""Code blocks of README and docs: Python compiles, data can be read, commands are known."""

import ast
import json
import re
import shlex

import pytest
import yaml
from cli import ROOT
from written_pages import DOCS

import ood_lab

PAGES = [ROOT / "README.md", *DOCS]
#: First words of the lines of a shell.
COMMANDS = {
    *("python", "pip", "ood-lab", "ood-lab-train", "ood-lab-eval", "pytest", "mkdocs", "wandb"),
    *("torchrun", "git", "cd", "eval", "export", "transformers", "vllm", "sbatch", "squeue"),
    *("sinfo", "scontrol", "ruff", "mypy"),
}


def blocks(page, *languages):
    """Code of the fences of a language, without their indentation."""
    for indent, language, code in re.findall(
        r"^( *)```(\w+)[^\n]*\n(.*?)^ *```", page.read_text(), re.S | re.M
    ):
        if language in languages:
            yield re.sub(rf"^{indent}", "", code, flags=re.M)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_code_blocks(page):
    for code in blocks(page, "python"):
        if ">>>" not in code:  # those are doctests
            tree = ast.parse(code)
            used = {
                node.attr
                for node in ast.walk(tree)
                if isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id == "ood_lab"
            }
            assert used - {"detectors", "metrics", "features"} <= set(ood_lab.__all__), code
    for code in blocks(page, "yaml"):
        yaml.safe_load(code)
    for code in blocks(page, "json", "jsonl"):
        for line in code.splitlines():
            json.loads(line)
    for code in blocks(page, "bash", "sh"):
        for line in code.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            names = [word for word in words if not re.match(r"\w+=", word)]  # variables before it
            if names:
                assert names[0].split("/")[-1] in COMMANDS | {"run"}, line
