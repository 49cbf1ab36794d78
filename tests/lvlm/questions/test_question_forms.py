"""A chain of thought against plain questions, asked by one command."""

import numpy as np
import pytest
from cli import call, run_folders
from PIL import Image
from scipy.stats import norm, t
from scripted_answers import answer_of

from ood_lab.common.files import read_table
from ood_lab.lvlm.benchmarks.oric.published_files import OricItem, problem_of, write_bench
from ood_lab.schema.results import whole

SMALL = ("annotations.n=30", "metrics.min_count=2", "logger=none", "lvlm=oracle")
MODEL = ("lvlm.accuracy=0.8",)


def run(outputs, *arguments, task="oodbench", figures=()):
    before = run_folders(outputs)
    given = (f"task={task}", *SMALL, *MODEL, f"paths.outputs={outputs}", *arguments)
    assert call("eval.py", *given, figures=figures) == 0
    (folder,) = set(run_folders(outputs)) - set(before)
    return folder


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """Both forms of the same questions, asked by one command."""
    outputs = tmp_path_factory.mktemp("forms")
    return run(outputs, "task.form=both", "metrics.n_bootstrap=2000", figures=["forms"])


def yes_no(folder, name="judged"):
    rows = read_table(folder / f"{name}.parquet")
    return rows[rows["task"] == "yes_no"]


@pytest.mark.slow
def test_one_command_asks_both_forms_of_the_same_pairs(both):
    plain, cot = yes_no(both), yes_no(both, "judged_cot")
    assert plain["pair_id"].tolist() == cot["pair_id"].tolist()
    assert plain["truth"].tolist() == cot["truth"].tolist()
    assert cot["text"].str.endswith("step by step.").all()
    assert not plain["text"].str.contains("step").any()
    assert set(cot["task"]) == {"yes_no"}  # a sample of BAP has no other form


@pytest.mark.slow
def test_differences_are_paired_and_corrected(both):
    plain, cot = yes_no(both), yes_no(both, "judged_cot")
    table = read_table(both / "forms.csv").query("metric == 'accuracy'").set_index("split")
    assert list(table.index) == ["id", "ood_s", "ood_h", "id_and_ood"]
    each = plain[["pair_id", "split"]].assign(
        d=cot["correct"].to_numpy(float) - plain["correct"].to_numpy(float)
    )
    for split, row in table.iterrows():
        rows = each if split == "id_and_ood" else each[each["split"] == split]
        by_pair = rows.groupby("pair_id")["d"].mean()
        assert row["difference"] == pytest.approx(by_pair.mean())
        error = by_pair.std(ddof=0) / np.sqrt(len(by_pair))
        # Intervals of few pairs are as wide as those of Student's t.
        width = 2 * t.ppf(0.975, len(by_pair) - 1) * by_pair.std() / np.sqrt(len(by_pair))
        assert row["ci_high"] - row["ci_low"] == pytest.approx(width, rel=0.12)
        p = 2 * norm.sf(abs(by_pair.mean()) / error)
        assert row["p_value"] == pytest.approx(p, abs=0.05)
        assert row["n"] == len(by_pair)
    worst, wanted = 0.0, {}
    for rank, (split, p) in enumerate(sorted(table["p_value"].items(), key=lambda each: each[1])):
        worst = max(worst, min(1.0, (len(table) - rank) * p))
        wanted[split] = worst
    assert table["p_holm"].to_dict() == pytest.approx(wanted)


def test_results_have_both_forms_and_their_differences(both):
    results = read_table(both / "results.parquet")
    rows = results.query("split == 'ood_h' and metric == 'accuracy'")
    rows = rows[rows["semantic_level"].isna() & rows["covariate_level"].isna()]
    wrong = rows[rows["unparsed"] == "wrong"]
    wrong = wrong.set_index(wrong["part"].fillna("plain"))
    values = wrong["value"]
    assert values["cot - plain"] == pytest.approx(values["cot"] - values["plain"])
    assert values["plain"] == pytest.approx(
        yes_no(both).query("split == 'ood_h'")["correct"].mean()
    )
    assert wrong.loc["cot - plain", "n_asked"] == 2 * wrong.loc["plain", "n_asked"]
    assert 0 <= wrong.loc["cot - plain", "p_holm"] <= 1
    assert len(whole(rows)) == 2  # the headline is the first form's alone, under both ways


def test_the_answer_says_what_a_chain_of_thought_changes(both):
    asked, accuracy, *others = answer_of(both, "oodbench")
    again = len(read_table(both / "judged_cot.parquet"))
    assert f", {again} of them again with a chain of thought" in asked
    plain = yes_no(both).query("split == 'ood_h'")["correct"].mean()
    assert accuracy.startswith("Asked plainly, its accuracy is ")
    assert f"{100 * plain:.1f}% [" in accuracy
    (changed,) = (each for each in others if each.startswith("With a chain of thought it is "))
    table = read_table(both / "forms.csv").query("metric == 'accuracy' and part.isna()")
    names = {"id": "ID", "ood_s": "OOD-S", "ood_h": "OOD-H"}
    better, _, alike = changed.partition("not significantly different on ")
    for row in table[table["split"].isin(names)].to_dict("records"):
        assert names[row["split"]] in (alike if row["p_holm"] >= 0.05 else better)


def test_the_page_and_the_terminal_show_them(both, capsys):
    page = (both / "oodbench.html").read_text()
    assert "Chain of thought minus plain, points" in page
    assert (both / "figures" / "forms.png").is_file()
    arguments = ("task=oodbench", *SMALL, *MODEL, "task.form=both", "metrics.n_bootstrap=2000")
    assert call("eval.py", *arguments, f"paths.outputs={both.parents[2]}") == 0
    shown = capsys.readouterr().out
    assert "With a chain of thought it is" in shown  # the table is on the page
    printed = shown.partition("Yes/no questions")[2]
    assert max(map(len, printed.splitlines())) <= 80


def test_forms_of_two_runs_are_not_compared_as_models(both, tmp_path, capsys):
    given = ("task=oodbench", *SMALL, *MODEL, "task.form=cot", "task.report=false")
    capsys.readouterr()
    assert call("eval.py", *given, f"paths.outputs={tmp_path}", f"task.against=['{both}']") == 1
    assert "only answers to the same questions can be compared" in capsys.readouterr().err


def test_oric_is_compared_by_wording_and_in_the_mean(tmp_path):
    (tmp_path / "images").mkdir()
    noise = np.random.default_rng(0)
    items = []
    for n in range(24):
        name, word = f"{n // 2}.png", ("dog", "cup", "bus")[n % 3]
        pixels = noise.integers(0, 255, (16, 16, 3), np.uint8)
        Image.fromarray(pixels).save(tmp_path / "images" / name)
        items.append(OricItem(n + 1, name, word, problem_of(word), ("yes", "no")[n % 2]))
    write_bench(items, tmp_path / "bench.json")
    given = (f"task.bench={tmp_path}/bench.json", f"task.images={tmp_path}/images", "task.pope=[]")
    given += ("task.form=both", "metrics.n_bootstrap=50")
    folder = run(tmp_path / "out", *given, task="oric")
    table = read_table(folder / "forms.csv").query("metric == 'macro_f1'")
    assert table["part"].fillna("mean").tolist() == [
        "mean",
        *(f"wording {k}" for k in (1, 2, 3, 4)),
    ]

    def f1(rows):
        """Mean of the F1 of yes and of no."""
        parts = []
        for word in ("yes", "no"):
            said, true = rows["parsed"] == word, rows["truth"] == word
            parts.append(2 * (said & true).sum() / (said.sum() + true.sum()))
        return np.mean(parts)

    cot, plain = (
        read_table(folder / f"{n}.parquet").groupby("prompt")[["parsed", "truth"]].apply(f1)
        for n in ("judged_cot", "judged")
    )
    assert table["difference"].tolist()[1:] == pytest.approx((cot - plain).tolist())
    assert table["difference"].iloc[0] == pytest.approx((cot - plain).mean())
    parts = set(read_table(folder / "results.parquet")["part"].dropna())
    assert {"cot", "cot, wording 1", "cot - plain", "cot - plain, wording 4"} <= parts
    shown = (folder / "oric.html").read_text()
    assert "ORIC, wording 4" in shown
