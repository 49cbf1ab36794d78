"""The pages of docs/ as a site: links, pictures, generated pages and tables, number of words."""

import html
import importlib
import re
import sys
import unicodedata
from functools import cache

import pytest
import yaml
from cli import ROOT
from written_pages import DOCS as WRITTEN
from written_pages import written

import ood_lab
from ood_lab.scripts import CONF

DOCS = ROOT / "docs"
PICTURES = DOCS / "assets" / "pictures"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]
RESULTS = sorted((DOCS / "results").glob("*.md"))
#: Of README and docs, without docs/results and the list of the papers' commands.
MOST_WORDS = 20_200


def module(name):
    path, sys.path[:0] = list(sys.path), [str(DOCS / "site")]
    yield importlib.import_module(name)
    sys.path[:] = path


@pytest.fixture(scope="module")
def generate():
    """What writes references into docs/."""
    yield from module("generate")


@pytest.fixture(scope="module")
def hooks():
    """What the site adds to docs/ when it is built."""
    yield from module("hooks")


@pytest.fixture(scope="module")
def reference():
    """Pages of the configuration, by their group."""
    return {page.stem: page.read_text() for page in (DOCS / "configuration").glob("*.md")}


def test_references_are_fresh(generate):
    stale = [path.relative_to(ROOT).as_posix() for path in generate.stale()]
    assert not stale, f"write {stale} with: python docs/site/generate.py"


def without_code(text):
    return re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)


@cache
def anchors(text):
    """Headings as the site, and a code host, name them; and names that are given."""
    plain = without_code(text)
    headings = {anchor(heading) for heading in re.findall(r"^#+ (.*)$", plain, re.M)}
    return headings | set(re.findall(r'<a id="([^"]+)">', plain))


def anchor(heading):
    plain = unicodedata.normalize("NFKD", heading).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip())


def broken_links(page, text):
    """Links of a page to a file or a heading that is not in the repository."""
    for link in re.findall(r"\]\(([^)\s]+)\)", without_code(text)):
        path, _, anchor = link.partition("#")
        if re.match(r"https?://|data:", link):
            continue
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target.read_text())):
            yield link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page):
    assert not list(broken_links(page, page.read_text()))


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
    every = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")} | set(hooks.pages())
    found |= {path for path in every if path.startswith(folders)}
    assert found == every


def test_the_site_has_formulas_and_pages_of_notebooks(hooks):
    text = (DOCS / "reference" / "detectors" / "odin.md").read_text()
    assert "```math" in text
    shown = hooks.on_page_markdown(text)
    assert "<math" in shown
    assert "```math" not in shown
    for page in DOCS.rglob("*.md"):
        shown = hooks.on_page_markdown(page.read_text())
        assert "\\arg" not in shown, page
        for path in re.findall(r"\]\(([./]*tutorials/notebooks/\w+\.md)", shown):
            place = (page.parent / path).resolve().relative_to(DOCS)
            assert place.as_posix() in hooks.pages(), page


def test_the_docs_are_short():
    left_out = {*RESULTS, DOCS / "reference" / "papers.md"}
    pages = [ROOT / "README.md", *(page for page in WRITTEN if page not in left_out)]
    counts = {
        page.relative_to(ROOT).as_posix(): len(re.findall(r"\S*\w\S*", written(page)))
        for page in pages
    }
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
        stated = page.read_text() if page.name in ("cifar10.md", "training.md") else section
        if "\n|" in section:
            assert re.search(
                r"(From|Output of) `[^`]+`, \d{4}-\d\d-\d\d|No single command; ", stated
            )


def test_pictures_are_small_and_shown():
    texts = [page.read_text() for page in PAGES]
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


def test_readme_and_limits_agree_about_gpus():
    for page in (ROOT / "README.md", DOCS / "explanation" / "limits.md"):
        assert re.search(
            r"run on one H100 \(\[what\]\([^)]*\)\), never on several", page.read_text()
        )


def test_every_picture_of_the_gallery_has_a_caption_and_a_command(generate):
    pictures = generate.gallery.pictures()
    assert len(pictures) > 30
    for one in pictures:
        assert one["caption"].endswith("."), one
        assert re.match(r"python (train|eval)\.py", one["command"]), one


def test_public_names_are_in_the_reference():
    page = (DOCS / "reference" / "api.md").read_text()
    listed = re.findall(r"^::: .*\.(\w+)$", page, re.M)
    assert set(ood_lab.__all__) <= set(listed)


def test_every_detector_has_a_page(generate):
    for one in generate.detector_pages.detector_files():
        page = (DOCS / "reference" / "detectors" / f"{one.key}.md").read_text()
        assert all((one.kind.formula, one.kind.suspicious)), one.key
        assert re.search(r"\| Source \| \S+", page), one.key
        assert "```math" in page or "$`" in page, one.key  # its formula
        for setting in one.settings:
            assert setting.startswith("_") or f"`detector.{one.key}.{setting}`" in page, setting
        assert ":class:" not in page


def test_every_kind_and_metric_is_in_a_table():
    results, metrics = (
        (DOCS / "reference" / f"{name}.md").read_text() for name in ("results", "metrics")
    )
    for name in ("detection", "verdict", "hierarchy", "shift", "vlm_answers"):
        assert f"| `{name}` |" in results
    for name in ("auroc", "fpr95_id_positive", "fpr95_ood_positive", "dad"):
        assert f"| `{name}` |" in metrics


def test_extras_have_a_purpose_and_packages(generate):
    rows = [row.strip("| ").split(" | ") for row in generate.tables()["extras"].split("\n")[2:]]
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
        section = page.split(f"\n## `{title}`\n")[1].split("\n## ")[0]
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
