"""The pages of docs/ as a site: what is linked and shown is there, what can be set is listed."""

import html
import importlib.util
import re
import sys
import unicodedata

import pytest
import yaml
from cli import ROOT

import ood_lab
from ood_lab.scripts import CONF

DOCS = ROOT / "docs"
PICTURES = DOCS / "assets" / "pictures"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.glob("*.md"))]


@pytest.fixture(scope="module")
def reference():
    """Pages of the configuration, as the site makes them when it is built."""
    spec = importlib.util.spec_from_file_location("reference", DOCS / "site" / "reference.py")
    module = sys.modules["reference"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.pages()


def anchors(page):
    """Headings as the site, and a code host, name them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.S | re.M)
    for heading in re.findall(r"^#+ (.*)$", text, re.M):
        plain = unicodedata.normalize("NFKD", heading).encode("ascii", "ignore").decode().lower()
        yield re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page, reference):
    wrong = []
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if link.startswith("https://") or path in ("changelog.md", "contributing.md"):
            continue
        if path.startswith("configuration/"):
            made = reference.get(target.stem, "")
            if not made or (anchor and f"{{#{anchor}}}" not in made):
                wrong.append(link)
        elif not target.exists() or (anchor and anchor not in anchors(target)):
            wrong.append(link)
    assert not wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_lists_are_lists(page):
    """Python-Markdown takes a list for one after an empty line alone."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.S | re.M)
    blocks = [re.sub(r"^#.*\n", "", block.strip("\n")) for block in re.split(r"\n\s*\n", text)]
    assert [b for b in blocks if re.search(r"^- ", b, re.M) and not b.startswith("- ")] == []


def test_every_page_is_in_the_navigation():
    content = yaml.safe_load((DOCS / "site" / "mkdocs.yml").read_text())
    found = set(re.findall(r"[\w-]+\.md", str(content["nav"])))
    assert found == {page.name for page in DOCS.glob("*.md")} | {"changelog.md", "contributing.md"}


def test_pictures_are_small_and_shown():
    shown = {
        match for page in PAGES for match in re.findall(r"pictures/(\w+\.webp)", page.read_text())
    }
    files = {file.name: file.stat().st_size for file in PICTURES.iterdir()}
    assert shown == set(files)
    assert sum(files.values()) < 1_500_000
    assert files["shift_report.webp"] < 300_000


def test_the_readme_is_short_and_shows_the_page():
    text = (ROOT / "README.md").read_text()
    assert text.count("\n") <= 150
    assert re.findall(r"!\[[^\]]*\]\(([^)]*)\)", text) == ["docs/assets/pictures/shift_report.webp"]
    for mark in ("setup", "test"):  # .ci/run reads the line below each
        assert re.search(rf"<!-- ci:{mark} -->\n```bash\n.+\n```\n", text)


def test_a_command_stands_under_each_picture():
    parts = (DOCS / "gallery.md").read_text().split("\n![")[1:]
    assert len(parts) > 30
    for part in parts:
        assert re.search(r"\n```bash\npython (train|eval)\.py.*\n```", part), part


def test_public_names_are_in_the_reference():
    page = (DOCS / "api.md").read_text()
    listed = re.findall(r"^::: .*\.(\w+)$", page, re.M)
    assert set(ood_lab.__all__) <= set(listed)


def test_every_option_and_comment_is_in_the_reference(reference):
    """Against PyYAML's reading of each file, and the bare text behind every ``#``."""
    missing, options, comments = [], 0, 0
    for file in sorted(CONF.rglob("*.yaml")):
        parts = file.relative_to(CONF).parts
        if parts[:2] == ("hydra", "help") or file.stem == "wandb_sweep":
            continue
        page = reference[parts[0] if len(parts) > 1 else "index"]
        title = f"{'/'.join(parts[:-1])}={file.stem}" if len(parts) > 1 else file.stem
        section = page.split(f"\n## `{title}` ")[1].split("\n## ")[0]
        section = re.sub(r"\[([\w-]+\.md)\]\(\.\./[^)]*\)", r"docs/\1", section)
        words = " ".join(html.unescape(re.sub(r"\\(?=\W|_)", "", section)).split())
        source = file.read_text()
        for path in paths(yaml.safe_load(source) or {}):
            options += 1
            if not is_listed(path, section):
                missing.append((file.name, path))
        public = re.sub(r"^\s*(- )?_\w+_.*$", "", source, flags=re.M)  # not what nobody sets
        for comment in re.findall(r"(?:^|  )# (.*)$", public, re.M):
            comments += 1
            comment = " ".join(comment.replace("\\", "").split())
            if not comment.startswith("@") and comment not in words:
                missing.append((file.name, comment))
    assert not missing
    assert options > 1000
    assert comments > 500


def paths(node, above=()):
    """Keys down to every value; ``defaults`` and what only ``instantiate`` reads are left out."""
    for key, value in node.items():
        if key == "defaults" or re.fullmatch(r"_\w+_", str(key)):
            continue
        if isinstance(value, dict) and value:
            yield from paths(value, (*above, str(key)))
        else:
            yield (*above, str(key))


def is_listed(path, section):
    """In a row of its own, or in the braces of the row of a key above it."""
    for depth in range(len(path), 0, -1):
        name = re.escape(".".join(path[:depth]))
        row = re.search(rf"^\| `(?:[\w/]+\.)*{name}` \| (.*)$", section, re.M)
        if row:
            return all(key in row[1] for key in path[depth:])
    return False
