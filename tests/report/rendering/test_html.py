"""The one-page report: complete, self-contained, sortable, safe."""

import io
import re
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from report_run import make_run, view_of, without_levels

from ood_lab.data.sources.image_files import load_rgb
from ood_lab.report.detection.detection_page import write_report
from ood_lab.report.detection.image_strips import marginal_blocks
from ood_lab.report.rendering.page import flatten
from ood_lab.report.rendering.thumbnails import Thumbnails
from ood_lab.report.results_lookup import RunView


class Page(HTMLParser):
    """Collects tags and the rows of the main table; fails on tags that do not nest."""

    VOID = ("meta", "link", "input", "img", "br")

    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.rows, self.ids = [], [], [], []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.tags.append((tag, attrs))
        self.ids += [attrs["id"]] if "id" in attrs else []
        if tag not in self.VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append((attrs, []))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and {"td", "th"} & set(self.open) and "script" not in self.open:
            self.rows[-1][-1][1].append(data.strip())

    def attribute(self, name):
        return [attrs[name] for _, attrs in self.tags if name in attrs]


def image(dataset, index):
    return Image.new("RGB", (40, 30), (index % 255, len(dataset), 0))


@pytest.fixture(scope="module")
def small():
    return make_run(3, 2, levels=2)


@pytest.fixture(scope="module")
def text(small, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    for name in ("results.csv", "config.yaml", "inputs.parquet"):
        (folder / name).touch()
    view = view_of(
        small.results,
        versions={"torch": "2.8"},
        warnings=["ID accuracy is at chance"],
        refused={"ash": "needs non-negative features"},
        detectors={"knn": {"k": 2, "chosen": "k = 2, for 18 images per class"}},
        title="a & b",
    )
    path = write_report(
        folder / "report.html",
        view,
        small.scores,
        load_image=image,
        classes=["ding", "<gui>"],
    )
    assert not list(folder.glob("*.part"))
    return path.read_text(encoding="utf-8")


@pytest.mark.slow
def test_settings_that_a_rule_has_chosen_are_there(text):
    assert "knn: k = 2, for 18 images per class" in text


def test_nothing_is_loaded_from_outside(text):
    page = Page(text)
    assert all(source.startswith("data:") for source in page.attribute("src"))
    links = [a["href"] for tag, a in page.tags if tag == "link"]
    assert all(link.startswith("data:") for link in links)
    assert all(u.startswith("data:") for u in re.findall(r"url\((.*?)\)", text))
    assert "@import" not in text
    assert "http://" not in text
    assert "https://" not in text


def test_headline_positive_class_manifest_and_warnings_are_there(text, small):
    accuracy = small.results.loc[small.results.metric == "id_accuracy", "value"].item()
    for words in (
        f"{100 * accuracy:.1f}%", "share of ID flagged when 95% of OOD is detected (OOD positive)",
        "versions.torch", "2.8", "ID accuracy is at chance", "needs non-negative features",
        'href="results.csv"', "a &amp; b", "share of OOD images accepted",
    ):  # fmt: skip
        assert words in text
    assert "inputs.parquet" not in text
    assert "<gui>" not in text
    assert "&lt;gui&gt;" in text
    page = Page(text)
    targets = [a["href"][1:] for _, a in page.tags if a.get("href", "").startswith("#")]
    assert targets
    assert set(targets) <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))


def test_only_what_has_values_is_shown_and_defined(small, text, tmp_path):
    whole = re.findall("<dt>([A-Z].*?)</dt>", text[text.index("<h2>Definitions") :])
    assert "Correlation" in whole
    one = small.results[
        small.results.dataset.isna() | small.results.dataset.isin(["grid", small.sets[0]])
    ]
    results = without_levels(one[one.metric != "dad"])
    page = write_report(tmp_path / "report.html", RunView(results), small.scores).read_text()
    known = re.findall("<dt>([A-Z].*?)</dt>", page[page.index("<h2>Definitions") :])
    assert set(whole) - set(known) == {"DAD", "Correlation", "Sensitivity"}
    assert "No level of grid has enough images" in page
    assert "by semantic level" not in page
    assert "N/A" not in page


def test_every_number_can_be_sorted_and_has_its_interval(text, small):
    page = Page(text)
    heads = [attrs for tag, attrs in page.tags if tag == "th" and "aria-sort" in attrs]
    assert {h["data-first"] for h in heads} == {"ascending", "descending"}
    buttons = [attrs for tag, attrs in page.tags if tag == "button"]
    assert len(buttons) == len(heads)
    whole = small.results[small.results.shift_level.notna()]
    for detector in small.detectors:
        row = next(r for r in page.rows if r and r[0][1] == [detector])
        cells = [(float(a["data-sort"]), a.get("title")) for a, _ in row[1:5]]
        mine = whole[whole.detector == detector]
        np.testing.assert_allclose([value for value, _ in cells], mine.value)
        ends = [f"{100 * r.ci_low:.1f} to {100 * r.ci_high:.1f}" for r in mine.itertuples()]
        assert [title for _, title in cells] == [f"95% interval {e}" for e in ends]


def test_the_best_of_a_column_is_marked(text, small):
    page = Page(text)
    first = small.results[(small.results.metric == "auroc") & (small.results.shift_level == 1)]
    best = first.set_index("detector").value.idxmax()
    for detector in small.detectors:
        row = next(r for r in page.rows if r and r[0][1] == [detector])
        assert (row[1][0].get("class") == "best") == (detector == best)


def test_mistakes_are_the_extreme_scores_and_pictures_are_kept_once(text, small):
    test = small.scores[small.scores.dataset == "test"]
    ood = small.scores[small.scores.dataset.isin(small.sets)]
    for detector in small.detectors:
        worst_id = test.loc[test[detector].idxmax()]
        worst_ood = ood.loc[ood[detector].idxmin()]
        for row in (worst_id, worst_ood):
            assert f"{row['dataset']} #{row['index']}:" in text
            assert f"score {row[detector]:.4g}," in text
    uris = re.findall(r"\.t\d+ \{ background-image: url\((data:image/jpeg[^)]*)\)", text)
    shown = set(re.findall(r"thumb t(\d+)", text))
    assert len(shown) == len(uris)
    assert text.count('aria-label="test #') + text.count('aria-label="transferred') == 3 * 12


def test_images_may_be_encoded_missing_or_unreadable(small, tmp_path, caplog):
    buffer = io.BytesIO()
    Image.new("RGB", (9, 9)).save(buffer, "PNG")

    def load(dataset, index):
        if dataset != "test":
            return load_rgb(f"moved/{dataset}.png")  # raises what it raises
        return buffer.getvalue() if index % 2 else None

    path = write_report(tmp_path / "r.html", RunView(small.results), small.scores, load_image=load)
    text = path.read_text()
    assert "no image" in text
    assert "data:image/jpeg" in text
    (warning,) = [r.message for r in caplog.records if "pictures" in r.message]
    assert "moved/transferred" in warning


def test_missing_cells_say_so_and_sort_last(small, tmp_path):
    results = small.results.copy()
    cell = (results.detector == "vim") & (results.dataset == small.sets[0])
    results.loc[cell, ["value", "ci_low", "ci_high"]] = np.nan
    page = Page(write_report(tmp_path / "r.html", RunView(results), small.scores).read_text())
    row = next(r for r in page.rows if r and r[0][1] == ["vim"])
    assert row[1][1] == ["N/A"]
    assert row[1][0]["data-sort"] == ""
    assert "Figures" not in page.ids


def test_a_run_in_which_every_detector_was_refused_still_has_a_report(small, tmp_path):
    results = small.results[small.results.metric == "id_accuracy"]
    path = write_report(tmp_path / "r.html", RunView(results), small.scores, load_image=image)
    assert 'id="results"' not in path.read_text()


def test_manifest_is_flattened():
    nested = {"a": {"b": 1, "c": {"d": None}}, "e": [1, 2], "f": {}}
    assert flatten(nested) == [("a.b", "1"), ("a.c.d", "none"), ("e", "1, 2"), ("f", "none")]


def test_the_field_of_one_detector_is_shown_from_a_menu_without_script(small, text):
    page = Page(text)
    choices = [attrs for tag, attrs in page.tags if tag == "input" and attrs["type"] == "radio"]
    labels = re.findall(r'<label for="([^"]+)">([^<]+)</label>', text)
    assert [of for of, _ in labels] == [attrs["id"] for attrs in choices]
    view = RunView(small.results)
    metrics = ["AUROC", "FPR95"] * 2  # of the tables by semantic and by covariate level
    assert [name for _, name in labels] == [*metrics, *view.detectors, "number of images"]
    first = [True, False, True, False, True, *[False] * len(view.detectors)]
    assert [("checked" in attrs) for attrs in choices] == first
    assert len({attrs["name"] for attrs in choices}) == 3
    (ood,) = view.level_sets
    semantic, covariate = view.cell_levels(ood)
    for metric, title in (("auroc", "AUROC"), ("fpr95", "FPR95")):
        name = view.detectors[1]
        table = text.split(f"<caption>{title} of {name} in % ({ood})")[1].split("</table>")[0]
        cells = re.findall(r'<td class="s(\d+)">(\d+)', table)
        found = [view.get(metric, name, ood, s, c).value for s in semantic for c in covariate]
        values = [value for value in found if not np.isnan(value)]  # few images: N/A, no colour
        assert [int(shown) for _, shown in cells] == [round(100 * value) for value in values]
        good = [1 - value if metric == "fpr95" else max(2 * value - 1, 0) for value in values]
        assert [int(shade) for shade, _ in cells] == [round(10 * share) for share in good]
    assert f'href="figures/heatmap_{ood}.png"' in text
    assert f"semantic × covariate level: {ood}" not in text  # the panels of all are not embedded


@pytest.mark.parametrize(
    ("column", "word"), [("semantic", "distance"), ("semantic_level", "level")]
)
def test_the_images_of_the_smallest_semantic_shift_have_prediction_and_msp(column, word):
    scores = pd.DataFrame(
        {
            "dataset": "far",
            "index": range(20),
            "pred": [0, 1] * 10,
            "msp": np.linspace(-1, -0.5, 20),
        }
    )
    shift = pd.Series(np.random.default_rng(0).permutation(20) / 10, name=column)
    shift[3] = np.nan
    store = Thumbnails(lambda *_: None)
    said, block = marginal_blocks(scores, shift, ["cat", "dog"], store)
    assert ("only levels are known" in said.text) == (word == "level")
    nearest = shift.dropna().sort_values().index[:12]
    expected = [
        f"far #{i}: predicted {'cat' if i % 2 == 0 else 'dog'}; MSP {-scores.msp[i]:.2f}; "
        f"{word} {shift[i]:.3g}"
        for i in nearest
    ]
    assert [item.text for item in block.items] == expected
    assert marginal_blocks(scores, pd.Series(np.nan, range(20)), [], store) == []
