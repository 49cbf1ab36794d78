"""The pages of docs/ as a site: links, pictures, generated pages and tables, number of words."""

import html
import importlib
import re
import sys
import unicodedata
from functools import cache
from pathlib import Path

import pytest
import yaml
from cli import ROOT

import ood_lab
from ood_lab.scripts import CONF

DOCS = ROOT / "docs"
PICTURES = DOCS / "assets" / "pictures"
#: Written by hand; those of docs/results store the outputs of commands.
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]
RESULTS = sorted((DOCS / "results").glob("*.md"))
#: Of README and docs, without docs/results and the list of the papers' commands.
MOST_WORDS = 19_500


@pytest.fixture(scope="module")
def hooks():
    """Pages and tables, as the site makes them when it is built."""
    path, sys.path[:0] = list(sys.path), [str(DOCS / "site")]
    yield importlib.import_module("hooks")
    sys.path[:] = path


@pytest.fixture(scope="module")
def reference(hooks):
    """Pages of the configuration, by their group."""
    folder = "configuration/"
    pages = hooks.pages().items()
    return {Path(path).stem: text for path, text in pages if path.startswith(folder)}


def without_code(text):
    return re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)


@cache
def anchors(text):
    """Headings as the site, and a code host, name them; and names that are given."""
    return {anchor(heading) for heading in re.findall(r"^#+ (.*)$", without_code(text), re.M)}


def anchor(heading):
    given = re.search(r"\{#([^}]+)\}", heading)
    plain = unicodedata.normalize("NFKD", heading).encode("ascii", "ignore").decode().lower()
    return given[1] if given else re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip())


def broken_links(page, text, generated):
    """Links of a page to a file, a page that is made or a heading that are not there."""
    for link in re.findall(r"\]\(([^)\s]+)\)", without_code(text)):
        path, _, anchor = link.partition("#")
        if re.match(r"https?://|data:", link):
            continue
        target = (page.parent / path).resolve() if path else page
        name = target.relative_to(DOCS).as_posix() if target.is_relative_to(DOCS) else ""
        there = generated.get(name)
        if there is None and target.is_file():
            there = target.read_text() if target.suffix == ".md" else ""
        exists = there is not None or target.exists()
        if not exists or (anchor and anchor not in anchors(there or "")):
            yield link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page, hooks):
    generated = hooks.pages() if page.is_relative_to(DOCS) else {}  # a code host has none
    assert not list(broken_links(page, page.read_text(), generated))


def test_links_of_generated_pages_lead_somewhere(hooks):
    """But of those that are at the top of the repository, too, which are in PAGES."""
    copies = ("changelog.md", "contributing.md")
    wrong = {
        path: links
        for path, text in hooks.pages().items()
        if path not in copies and (links := list(broken_links(DOCS / path, text, hooks.pages())))
    }
    assert not wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_lists_are_lists(page):
    """Python-Markdown needs an empty line before a list."""
    text = without_code(page.read_text())
    blocks = [re.sub(r"^#.*\n", "", block.strip("\n")) for block in re.split(r"\n\s*\n", text)]
    assert [b for b in blocks if re.search(r"^- ", b, re.M) and not b.startswith("- ")] == []


def test_every_page_is_in_the_navigation(hooks):
    content = yaml.safe_load((DOCS / "site" / "mkdocs.yml").read_text())
    named = set(re.findall(r"'([\w/-]+(?:\.md|/))'", str(content["nav"])))
    folders = tuple(name for name in named if name.endswith("/"))
    found = {name for name in named if name.endswith(".md")}
    found |= {path for path in hooks.pages() if path.startswith(folders)}
    written = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}
    assert found == written | set(hooks.pages())


def test_tables_that_pages_name_are_made(hooks):
    for page in PAGES:
        text = hooks.on_page_markdown(page.read_text())
        assert not re.search(r"^<!-- table", text, re.M), page


def words(page):
    """With code and tables; a mark of a table is no word."""
    return len(re.findall(r"\S*\w\S*", re.sub(r"<!--.*?-->", "", page.read_text())))


def test_the_docs_are_short():
    left_out = {*RESULTS, DOCS / "reference" / "papers.md"}
    pages = [ROOT / "README.md", *(page for page in DOCS.rglob("*.md") if page not in left_out)]
    counts = {page.relative_to(ROOT).as_posix(): words(page) for page in pages}
    assert sum(counts.values()) <= MOST_WORDS, counts


def test_measured_tables_have_their_command_and_date():
    sections = [
        (page, part)
        for page in RESULTS
        if page.name != "index.md"
        for part in re.split(r"^## ", page.read_text(), flags=re.M)[1:]
    ]
    assert len(sections) > 25
    for page, section in sections:
        stated = page.read_text() if page.name == "cifar10.md" else section
        if "\n|" in section:
            assert re.search(
                r"(From|Output of) `[^`]+`, \d{4}-\d\d-\d\d|No single command; ", stated
            )


def test_pictures_are_small_and_shown(hooks):
    texts = [*(page.read_text() for page in PAGES), *hooks.pages().values()]
    shown = {match for text in texts for match in re.findall(r"pictures/(\w+\.webp)", text)}
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


def test_every_picture_of_the_gallery_has_a_caption_and_a_command(hooks):
    pictures = hooks.gallery.pictures()
    assert len(pictures) > 30
    for one in pictures:
        assert one["caption"].endswith("."), one
        assert re.match(r"python (train|eval)\.py", one["command"]), one


def test_public_names_are_in_the_reference():
    page = (DOCS / "reference" / "api.md").read_text()
    listed = re.findall(r"^::: .*\.(\w+)$", page, re.M)
    assert set(ood_lab.__all__) <= set(listed)


def test_every_detector_has_a_page(hooks):
    for one in hooks.detector_pages.detector_files():
        page = hooks.pages()[f"reference/detectors/{one.key}.md"]
        assert all((one.kind.formula, one.kind.source, one.kind.suspicious)), one.key
        assert "<math" in page, one.key  # its formula
        assert "\\arg" not in page, one.key
        for setting in one.settings:
            assert setting.startswith("_") or f"`detector.{one.key}.{setting}`" in page, setting
        assert ":class:" not in page


def test_every_kind_and_metric_is_in_a_table(hooks):
    tables = hooks.tables()
    for name in ("detection", "verdict", "hierarchy", "shift", "miss_distance", "vlm_answers"):
        assert f"| `{name}` |" in tables["kinds"]
    for name in ("auroc", "fpr95_id_positive", "fpr95_ood_positive", "dad", "augrc"):
        assert f"| `{name}` |" in tables["metrics"]


def test_extras_have_a_purpose_and_packages(hooks):
    rows = [row.strip("| ").split(" | ") for row in hooks.tables()["extras"].split("\n")[2:]]
    assert {row[0] for row in rows} >= {"`lvlm`", "`docs`", "`dev`", "`sweep`"}
    assert all(len(row) == 3 for row in rows)


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
        section = re.sub(r"\[([\w/-]+\.md)\]\(\.\./[^)]*\)", r"docs/\1", section)
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
