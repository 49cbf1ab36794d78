"""Figures: written, without warnings, no text over text or off the page, right numbers."""

import warnings

import matplotlib
import matplotlib.text
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.lines import Line2D
from matplotlib.path import Path
from matplotlib.transforms import Affine2D
from report_run import make_run, without_levels, write_figures

from ood_lab.metrics import roc_curve
from ood_lab.report.detection import figure_inputs
from ood_lab.report.detection.class_figures import confusion, confusion_counts
from ood_lab.report.detection.figure_inputs import FigureInputs
from ood_lab.report.detection.run_figures import heatmap, level_figures, planned_figures
from ood_lab.report.detection.score_figures import densities, normalise, roc
from ood_lab.report.figures.densities import density
from ood_lab.report.figures.layout import short_names, spread, style
from ood_lab.report.figures.lines import curve
from ood_lab.report.figures.scatter import principal_components
from ood_lab.report.rendering.drawing import RC
from ood_lab.report.results_lookup import RunView
from ood_lab.schema.run_record import RunRecord


def features_of(run):
    rng = np.random.default_rng(0)
    return {name: rng.normal(i, 1, (40, 12)) for i, name in enumerate(["test", *run.sets])}


def inputs_of(run, positive="ood"):
    classes = [f"class number {i}, early" for i in range(6)]
    view = RunView(run.results, record=RunRecord(fpr95_positive=positive))
    return FigureInputs(view, run.scores, features_of(run), classes)


def drawn_texts(figure, monkeypatch):
    """Text and outline of everything written when the figure is drawn."""
    texts = []
    draw = matplotlib.text.Text.draw

    def record(self, renderer, *args, **kwargs):
        draw(self, renderer, *args, **kwargs)
        if self.get_visible() and self.get_text().strip():
            # Annotations also report the extent of their arrows: the words are what counts.
            box = matplotlib.text.Text.get_window_extent(self, renderer)
            texts.append((self.get_text(), box))

    with monkeypatch.context() as patch:
        patch.setattr(matplotlib.text.Text, "draw", record)
        FigureCanvasAgg(figure).draw()
    for line in figure.findobj(Line2D):  # words in cells are marks
        if isinstance(mark := line.get_marker(), Path):
            extents = mark.get_extents().transformed(Affine2D().scale(figure.dpi / 72))
            places = line.axes.transData.transform(line.get_xydata())
            texts += [(line.get_label()[1:], extents.translated(*place)) for place in places]
    return texts


def overlaps(a, b, slack):
    return min(a.x1, b.x1) - max(a.x0, b.x0) > slack and min(a.y1, b.y1) - max(a.y0, b.y0) > slack


#: Figures that show FPR95, and so say which of the two it is.
WITH_FPR95 = ("fpr95_bars", "roc", "levels_grid", "heatmap_grid_fpr95")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("detectors", "sets"), [(1, 1), (5, 2), pytest.param(15, 8, marks=pytest.mark.slow)]
)
def test_no_text_overlaps_or_leaves_the_page(detectors, sets, monkeypatch):
    run = make_run(detectors, sets, levels=0 if sets == 2 else 4)
    with warnings.catch_warnings(), matplotlib.rc_context(RC):
        warnings.simplefilter("error")
        inputs = inputs_of(run)
        by_level = [f for ood in inputs.view.level_sets for f in level_figures(inputs, ood)]
        for planned in [*planned_figures(inputs), *by_level]:
            name = planned.name
            if (figure := planned.draw()) is None:
                continue
            texts = drawn_texts(figure, monkeypatch)
            page = figure.bbox
            slack = figure.dpi / 72  # one point: boxes are a little larger than the letters
            assert any("(OOD positive)" in text for text, _ in texts) == (name in WITH_FPR95), name
            for i, (text, box) in enumerate(texts):
                assert min(box.x0, box.y0) >= -slack, (name, text)
                assert max(box.x1 - page.x1, box.y1 - page.y1) <= slack, (name, text)
                for other, other_box in texts[:i]:
                    assert not overlaps(box, other_box, slack), (name, text, other)


def test_every_figure_is_written_twice_and_state_is_left_alone(tmp_path):
    run = make_run(2, 2, levels=2)
    before = dict(matplotlib.rcParams)
    files = write_figures(tmp_path, RunView(run.results), run.scores, features=features_of(run))
    names = {file.name for file in files}
    assert names == {
        "densities", "fpr95_bars", "roc", "levels_grid", "heatmap_grid",
        "heatmap_grid_fpr95", "features", "confusion",
    }  # fmt: skip
    for file in files:
        assert (tmp_path / f"{file.name}.png").read_bytes().startswith(b"\x89PNG")
        assert (tmp_path / f"{file.name}.png").stat().st_size > 10_000
        assert "</svg>" in (tmp_path / f"{file.name}.svg").read_text()
        assert file.caption
    assert dict(matplotlib.rcParams) == before


def test_a_figure_that_fails_is_one_warning(tmp_path, monkeypatch, caplog):
    def fails(inputs):
        raise ZeroDivisionError("of an axis")

    monkeypatch.setattr("ood_lab.report.detection.run_figures.fpr95_bars", fails)
    run = make_run(2, 1, levels=0)
    names = {f.name for f in write_figures(tmp_path, RunView(run.results), run.scores)}
    assert names == {"densities", "roc", "confusion"}
    (warning,) = [record.message for record in caplog.records]
    assert "figure fpr95_bars is skipped (ZeroDivisionError: of an axis)" in warning


def test_what_cannot_be_drawn_is_left_out(tmp_path):
    run = make_run(2, 1, levels=0)
    scores = run.scores.assign(label=-1)
    names = {f.name for f in write_figures(tmp_path, RunView(run.results), scores)}
    assert names == {"densities", "fpr95_bars", "roc"}


def test_the_other_positive_class_is_named(run, monkeypatch):
    with matplotlib.rc_context(RC):
        figure = roc(inputs_of(run, "id"))
    assert any("(ID positive)" in text for text, _ in drawn_texts(figure, monkeypatch))


def test_panels_stand_in_the_order_of_the_table(run):
    inputs = inputs_of(run)
    with matplotlib.rc_context(RC):
        figures = densities(inputs), heatmap(inputs, "grid", "auroc")
    detectors = RunView(run.results).detectors
    titles = [axes.get_title() for axes in figures[0].axes]
    assert [title.split(" (DAD")[0] for title in titles] == detectors
    titles = [text.get_text() for text in figures[1].axes[0].texts if text.get_fontsize() == 7]
    assert titles == [*detectors, "number of OOD images"]


@pytest.mark.slow
def test_a_heat_map_of_many_detectors_shows_the_best_and_the_baseline(monkeypatch):
    run = make_run(15, 3)
    worst = RunView(run.results).detectors[-1]
    monkeypatch.setattr(figure_inputs, "BASELINE", worst)
    inputs = inputs_of(run)
    with matplotlib.rc_context(RC):
        figure = heatmap(inputs, "grid", "auroc")
    titles = [text.get_text() for text in figure.axes[0].texts if text.get_fontsize() == 7]
    assert titles == [*inputs.view.detectors[:13], worst, "number of OOD images"]
    assert any("Of 15 detectors: those" in text for text, _ in drawn_texts(figure, monkeypatch))


def first_point(line):
    return np.ravel(line.get_xdata())[0], np.ravel(line.get_ydata())[0]


def test_without_any_value_by_level_there_is_no_figure_of_levels(tmp_path):
    run = make_run(2, 2, levels=2)
    results = without_levels(run.results)
    names = {f.name for f in write_figures(tmp_path, RunView(results), run.scores)}
    assert names == {"densities", "fpr95_bars", "roc", "confusion"}


def test_short_names_still_differ():
    long = [f"a long name that ends with the number {i}" for i in range(12)]
    for names in (long, ["x" * 40, "y" * 40], ["the same", "the same"], ["one"], long[:1]):
        short = short_names(names, 12)
        assert len(set(short)) == len(set(names))
        assert all(len(name) <= 12 for name in short)
    assert short_names(["early Shang", "late Shang"]) == ["early Shang", "late Shang"]
    twins = [f"{'a' * 30}{i}{'z' * 30}" for i in (1, 2)] + ["b"]
    assert len(set(short_names(twins, 12))) == 3


@pytest.mark.parametrize("classes", [2, 40])
def test_names_of_classes_are_not_on_each_other(classes, monkeypatch):
    rng = np.random.default_rng(0)
    run = make_run(1, 1, levels=0)
    scores = run.scores.copy()
    for column in ("label", "pred"):
        scores[column] = rng.integers(0, classes, len(scores))
    names = [f"a rather long class name of kind {i:02d}" for i in range(classes)]
    inputs = FigureInputs(RunView(run.results), scores, {}, names)
    with matplotlib.rc_context(RC):
        texts = drawn_texts(confusion(inputs), monkeypatch)
    assert len({text for text, _ in texts if text.startswith(("…", "a r"))}) >= min(classes, 30)
    slack = 200 / 72
    for i, (text, box) in enumerate(texts):
        assert not any(overlaps(box, other, slack) for _, other in texts[:i]), text


def test_missing_cells_are_named_with_their_n(run, monkeypatch):
    with matplotlib.rc_context(RC):
        draw = {f.name: f.draw for f in level_figures(inputs_of(run), "grid")}["heatmap_grid"]
        figure = draw()
        words = [text for text, _ in drawn_texts(figure, monkeypatch)]
    assert words.count("N/A") == len(run.detectors)
    axes = figure.axes[0]
    (title,) = (text for text in axes.texts if text.get_text() == "number of OOD images")
    x, y = title.get_position()
    counts = [
        int(line.get_label()[1:])
        for line in axes.lines
        if line.get_color() == "black"  # not the levels
        for place in line.get_xydata()
        if 0 < place[0] - x < 4 and place[1] > y
    ]
    assert sorted(counts) == [2, *[15] * 15]


def distance(points, line):
    """The largest distance of points from a line through others."""
    start, way = line[:-1], np.diff(line, axis=0)
    at = ((points[:, None] - start) * way).sum(-1) / np.maximum((way**2).sum(-1), 1e-12)
    nearest = start + np.clip(at, 0, 1)[..., None] * way
    return np.linalg.norm(points[:, None] - nearest, axis=-1).min(1).max()


@pytest.mark.slow
@pytest.mark.parametrize(("n", "few"), [(1, 4), (20, 41), (150, 301), (5003, 300)], ids="{}".format)
@pytest.mark.parametrize("kind", ["smooth", "roc"])
def test_a_thinned_curve_is_less_than_a_pixel_from_the_curve(kind, n, few):
    rng = np.random.default_rng(0)
    inside, outside = rng.normal(0, 1, n), rng.normal(1.5, 1, n)
    x, y = {
        "smooth": lambda: (np.linspace(0, 1, n + 1), np.linspace(0, 1, n + 1) ** 2),
        "roc": lambda: roc_curve(inside, outside)[:2],
    }[kind]()
    line = curve(x, y, None)
    full, kept = 100 * np.column_stack([x, y]), np.column_stack([line.x, line.y])
    assert len(kept) <= few
    np.testing.assert_array_equal(kept[[0, -1]], full[[0, -1]])
    assert distance(full, kept) < 0.2
    assert distance(kept, full) < 1e-9  # no point is made up


def test_density_integrates_to_one_and_finds_the_mode():
    values = np.random.default_rng(0).normal(2, 1, 5000)
    x, y = density(values, -4, 8)
    assert np.trapezoid(y, x) == pytest.approx(1, abs=0.01)
    assert x[y.argmax()] == pytest.approx(2, abs=0.3)
    assert y.max() == pytest.approx(0.39, abs=0.04)


def test_normalised_scores_keep_their_order_and_survive_constant_scores():
    scores = np.array([-1e6, -1.0, 0.0, 2.0, 1e9])
    assert (np.diff(normalise(scores, scores)) > 0).all()
    assert np.isfinite(normalise(scores, np.ones(7))).all()


def test_principal_components_agree_with_scikit_learn():
    from sklearn.decomposition import PCA

    data = np.random.default_rng(0).normal(size=(60, 9)) * np.arange(1, 10)
    points, shares = principal_components(data)
    reference = PCA(2).fit(data)
    np.testing.assert_allclose(np.abs(points), np.abs(reference.transform(data)), atol=1e-6)
    np.testing.assert_allclose(shares, reference.explained_variance_ratio_, atol=1e-9)


def test_constant_features_are_drawn_at_one_point():
    points, shares = principal_components(np.ones((5, 4)))
    assert not points.any()
    assert not shares.any()


def test_confusion_counts():
    counts = confusion_counts(np.array([0, 0, 1, 2]), np.array([0, 2, 1, 2]), 3)
    assert counts.tolist() == [[1, 0, 1], [0, 1, 0], [0, 0, 1]]


@pytest.mark.parametrize("positions", [[5.0], [1, 1, 1], [0, 9.9, 10, 10, 3], list(range(11))])
def test_spread_keeps_order_gap_and_limits(positions):
    placed = np.array(spread(positions, 1.0, 0.0, 10.0))
    order = np.argsort(positions, kind="stable")
    assert (np.diff(placed[order]) >= 1 - 1e-9).all()
    assert placed.min() >= -1e-9
    assert placed.max() <= 10 + 1e-9


def test_series_styles_are_distinct():
    assert len({(s.color, s.line) for s in map(style, range(28))}) == 28
    assert len({(s.color, s.marker) for s in map(style, range(28))}) == 28
