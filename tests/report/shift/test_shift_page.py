"""The page, the figures and the tables of a measurement: right numbers, in the right order."""

import io
import re
import warnings

import matplotlib
import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from rich.console import Console
from test_html import Page

from ood_lab.common.random_streams import Resampling
from ood_lab.data.sources.image_files import load_rgb
from ood_lab.evaluation.shift.image_distances import summarised
from ood_lab.report.rendering.drawing import RC, write_all
from ood_lab.report.rendering.terminal import Printed
from ood_lab.report.shift.shift_figures import (
    ShiftInputs,
    Space,
    cells_figure,
    separability_figure,
    shift_scatter,
)
from ood_lab.report.shift.shift_page import write_shift_page
from ood_lab.report.shift.shift_tables import (
    cells_table,
    separability_table,
    summary_tables,
)
from ood_lab.schema.run_record import RunRecord
from ood_lab.shift import separability

#: Mean D_sem and D_cov, number of images.
SETS = {"test": (0.1, 0.1, 60), "far_looks": (0.15, 0.7, 40), "far_both": (0.6, 0.7, 40)}
MANIFEST = {
    "title": "Shift from vessels",
    "clip": {"name": "tiny"},
    "laid": {"margin": 0.5},
    "k": 10,
    "id_images": 1234,
    "rulers": [
        {
            "metric": "held_out_class_units",
            "axis": "semantic",
            "marks": [0.1, 0.15],
            "reason": None,
        },
        {
            "metric": "corruption_severity",
            "axis": "covariate",
            "marks": [0.1, 0.2, 0.2, 0.3, 0.4, 0.5],
            "reason": None,
        },
    ],
}


def make_degrees(sets=SETS, spread=0.1, seed=0):
    rng = np.random.default_rng(seed)
    parts = []
    for name, (semantic, covariate, n) in sets.items():
        values = np.array([semantic, covariate]) + spread * (rng.random((n, 2)) - 0.5)
        rows = pd.DataFrame(values, columns=["semantic", "covariate"])
        rows["semantic_clip"] = rows["covariate_clip"] = values.mean(axis=1)
        rows["semantic_pca"], rows["covariate_pca"] = values.T / 2
        paths = [f"{name}/{i}.png" for i in range(n)]
        parts.append(rows.assign(dataset=name, index=np.arange(n), path=paths, label=-1))
    return pd.concat(parts, ignore_index=True)


def images(broken=None):
    def load_image(name, index):
        if name == broken:
            return load_rgb(f"moved/{name}.png")  # raises what it raises
        return Image.new("RGB", (40, 30), (index, len(name), 0))

    return load_image


def made(folder, degrees, load_image, manifest):
    summary = summarised(degrees, resampling=Resampling(draws=100, seed=0))
    blocks = summary_tables(summary)
    return write_shift_page(folder, degrees, summary, blocks, load_image, RunRecord(**manifest))


def shown(renderable, width=120):
    console = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(renderable)
    return console.export_text()


@pytest.fixture(scope="module")
def degrees():
    return make_degrees()


@pytest.fixture(scope="module")
def page(degrees, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    for name in ("results.csv", "config.yaml"):
        (folder / name).touch()
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        made(folder, degrees, images(), MANIFEST)
    return folder


def test_sets_stand_in_order_and_near_ties_are_marked(degrees):
    semantic, covariate = shown(
        Printed(summary_tables(summarised(degrees, resampling=Resampling(draws=100, seed=0))))
    ).split("Covariate")
    for text, axis in ((semantic, "semantic"), (covariate, "covariate")):
        means = degrees.groupby("dataset")[axis].mean().sort_values()
        lines = [line for line in text.splitlines() if re.search(r"\d \s*$|\d$", line)]
        names = [line.split("  ")[0].replace("ID test (no shift)", "test") for line in lines]
        assert names == list(means.index)
        for line, mean in zip(lines, means, strict=True):
            assert f" {mean:.3f} " in line
    # Both far sets have the same covariate mean; on the semantic axis all three differ.
    assert "≈" not in semantic
    table = covariate[: covariate.index("≈ =")]
    assert [line.split()[0] for line in table.splitlines() if re.search(r"\d +≈ ", line)] == [
        summarised(degrees, resampling=Resampling(draws=100, seed=0))
        .query("axis == 'covariate'")["dataset"]
        .iloc[1]
    ]


@pytest.mark.parametrize("width", [140, 40])
def test_cells_show_every_count_and_what_is_too_few(width):
    counts = np.array([[1200, 9, 10], [0, 33, 7]])
    text = shown(Printed([cells_table(counts, 10)]), width)
    for n in (1200, 10, 33):
        assert re.search(rf"(?<![\d(]){n:,}(?![\d)])", text)
    for n in (0, 7, 9):
        assert f"({n})" in text
    for total in (*counts.sum(0), *counts.sum(1), counts.sum()):
        assert f"{total:,}" in text
    assert "N/A, fewer than 10 images: 3 of 6 cells" in " ".join(text.split())


def test_the_figure_of_cells_names_the_missing(tmp_path):
    counts = np.array([[1200, 9, 10], [0, 33, 7]])
    with matplotlib.rc_context(RC):
        axes = cells_figure(counts, counts >= 10, 10).draw().axes[0]
    places = {line.get_label()[1:]: line.get_xydata() // 1 for line in axes.lines}
    assert sorted(map(tuple, places["N/A"])) == [(0, 1), (1, 0), (2, 1)]
    assert {"1,200", "10", "33", "n=9", "n=0", "n=7"} <= set(places)
    assert places["33"].tolist() == [[1, 1]]  # column = semantic, row = covariate
    assert places["10"].tolist() == [[2, 0]]
    none = np.zeros((3, 3), int)
    (nothing,) = write_all(tmp_path, [cells_figure(none, none > 0, 10)])
    assert Image.open(tmp_path / f"{nothing.name}.png").width > 500
    assert (tmp_path / f"{nothing.name}.svg").exists()


def test_the_page_is_whole_and_holds_every_number(page, degrees):
    text = (page / "shift.html").read_text()
    parsed = Page(text)
    assert len(parsed.ids) == len(set(parsed.ids))
    assert {"t1-1", "t1-2"} <= set(parsed.ids)
    assert not re.search(r"(src|href)=\"(https?:)?//", text)
    for _, row in summarised(degrees, resampling=Resampling(draws=100, seed=0)).iterrows():
        assert f">{row['mean']:.3f}<" in text
        assert f">{row['mean_low']:.3f}–{row['mean_high']:.3f}<" in text
        if row["dataset"] != "test":
            ends = (100 * row["frac_above_id_q95_low"], 100 * row["frac_above_id_q95_high"])
            assert f">{100 * row['frac_above_id_q95']:.1f}<" in text
            assert ("N/A" if np.isnan(ends[0]) else "{:.1f}–{:.1f}".format(*ends)) in text
    assert "10th nearest of 1,234 ID images, CLIP tiny" in text
    assert "Semantic shift degree" in text
    assert text.count("data:image/svg+xml") == 3
    names = ["scatter", "order", "decompositions"]
    for name in names:
        for kind in ("png", "svg"):
            assert (page / "figures" / f"shift_{name}.{kind}").stat().st_size > 5000
            assert f'href="figures/shift_{name}.{kind}"' in text
    assert 'href="results.csv"' in text
    assert 'href="shift_scores.parquet"' not in text  # is not there


def test_the_strips_begin_with_the_nearest_and_the_farthest(page, degrees):
    text = (page / "shift.html").read_text()
    for name in SETS:
        rows = degrees[degrees.dataset == name]
        label = "ID test (no shift)" if name == "test" else name
        part = text[text.index(f"<summary>{label}</summary>") :]
        part = part[: part.index("</details>")]
        for axis in ("semantic", "covariate"):
            for which, row in (
                ("nearest", rows.loc[rows[axis].idxmin()]),
                ("farthest", rows.loc[rows[axis].idxmax()]),
            ):
                strip = part[part.index(f"{axis.capitalize()}: {which}") :]
                first = re.search(r"<span>(.*?)</span>", strip)[1]
                assert first == f"{row[axis]:.3f} · {row['index']}.png"
    shown_once = len(re.findall(r"\.t\d+ \{", text))
    assert 0 < shown_once <= 4 * 6 * len(SETS)


def test_images_that_are_gone_and_sets_without_spread(tmp_path):
    sets = {"test": (0.1, 0.1, 12), "one": (0.3, 0.3, 12), "gone": (0.2, 0.5, 1)}
    degrees = make_degrees(sets, spread=0.0).drop(columns=["semantic_pca", "covariate_pca"])
    degrees = degrees.drop(columns=["semantic_clip", "covariate_clip"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        page = made(tmp_path, degrees, images("gone"), MANIFEST)
    text = page.read_text()
    assert text.count("no image") == 4  # nearest and farthest on both axes, of one image
    assert not (tmp_path / "figures" / "shift_decompositions.png").exists()


def test_separability_side_by_side(tmp_path):
    torch.manual_seed(0)
    known = torch.randn(200, 12)
    sets = {"test": torch.randn(60, 12), "near": torch.randn(60, 12) + 0.5}
    sets["far"] = torch.randn(60, 12) + 3
    found = {"net": separability(known, sets), "CLIP": separability(2 * known, sets)}
    text = shown(Printed([separability_table({k: v.table for k, v in found.items()}, "id")]))
    for space in found.values():
        for value in space.table["bhattacharyya"]:
            assert f"{value:.3f}" in text
    order = [text.index(name) for name in ("ID test (no shift)", "near", "far")]
    assert order == sorted(order)
    with matplotlib.rc_context(RC):
        spaces = {
            name: Space(
                {key: rows.numpy() for key, rows in space.points.items()},
                space.projection.variance_share.tolist(),
                space.table,
            )
            for name, space in found.items()
        }
        figure = separability_figure(spaces).draw()
    net, clip, below = figure.axes
    assert (net.get_title(), clip.get_title()) == ("net", "CLIP")
    assert len(below.lines) == 2
    distances = found["net"].table.set_index("dataset")["bhattacharyya"]
    np.testing.assert_allclose(below.lines[0].get_xdata(), distances[["test", "near", "far"]])
    (file,) = write_all(tmp_path, [separability_figure({"net": spaces["net"]})])
    assert (tmp_path / f"{file.name}.png").exists()
    assert (tmp_path / f"{file.name}.svg").exists()


def test_the_map_has_the_scales_of_the_rulers():
    degrees = make_degrees()
    summary = summarised(degrees, resampling=Resampling(draws=20, seed=0))

    def ticks_of(rulers):
        figure = shift_scatter(ShiftInputs(degrees, summary, "", rulers))
        figure.savefig(io.BytesIO())
        (main,) = (axes for axes in figure.axes if axes.get_xlabel().startswith("semantic"))
        scales = [scale for child in main.child_axes for scale in (child.xaxis, child.yaxis)]
        named = {scale.get_label_text(): scale.get_ticklabels() for scale in scales}
        return {name: [t.get_text() for t in ticks] for name, ticks in named.items() if name}

    ticks = ticks_of(MANIFEST["rulers"])
    assert ticks["severity of corruption of your test images"] == ["0", "2", "3", "4", "5"]
    units = ticks["1 = one of your own classes, held out"]
    assert {"0", "10"} <= set(units)  # a mean of 0.6 is 10 units from 0.1
    without = [ruler | {"reason": "one class"} for ruler in MANIFEST["rulers"]]
    assert ticks_of(without) == {}
