"""``task=oric`` through the real entry point: stages together, alone, and wrong inputs."""

import json

import pandas as pd
import pytest
from cli import call, run_folders
from local_server import LocalServer

from ood_lab.common.files import read_table
from ood_lab.lvlm.benchmarks.oric.published_files import read_bench, read_train
from ood_lab.lvlm.questions.question_files import read_questions

SMALL = (
    "annotations.n=60",
    "clip=scenes",
    "judge.quantile=0.6",
    "task.construct.pairs=4",
    "metrics.n_bootstrap=50",
    "metrics.min_count=2",
    "logger=none",
)

DRAWN = ("sets", "context", "tiers", "clip_score", "p_context")


def run(outputs, *arguments, figures=()):
    line = ("task=oric", *SMALL, f"paths.outputs={outputs}", *arguments)
    return call("eval.py", *line, figures=figures)


def folder_of(outputs, before=()):
    (folder,) = set(run_folders(outputs)) - set(before)
    return folder


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    outputs = tmp_path_factory.mktemp("oric")
    options = ("lvlm=oracle", "lvlm.accuracy=0.9", "task.train_pairs=2", "task.ablations=[uniform]")
    assert run(outputs, *options, "annotations.restyled=0.3", figures=DRAWN) == 0
    return folder_of(outputs)


def test_every_stage_leaves_what_the_next_one_reads(finished):
    names = ("audit.csv", "sets.parquet", "analyses.csv", "questions.jsonl", "answers.jsonl")
    tables = ("judged.parquet", "results.csv", "differences.csv", "context.csv", "tiers.csv")
    for name in (*names, *tables, "predictions_1.json", "predictions_4.json", "oric.html"):
        assert (finished / name).is_file(), name
    assert {p.stem for p in (finished / "figures").glob("*.png")} >= {*DRAWN}


def test_both_files_are_in_the_published_format_and_share_no_image(finished):
    bench, train = (
        read_bench(finished / "oric_bench.json"),
        read_train(finished / "oric_train.json"),
    )
    assert [item.solution for item in bench[:4]] == ["yes", "yes", "no", "no"]
    assert len(bench) == 16
    assert not {item.image for item in bench} & {item.image for item in train}


def test_questions_are_true_of_the_annotations(finished):
    sets = read_table(finished / "sets.parquet")
    there = sets[sets["label"] == "yes"]
    assert there["area"].notna().all()
    assert set(sets["split"]) == {
        "oric",
        "uniform",
        "pope_random",
        "pope_popular",
        "pope_adversarial",
    }
    questions = read_questions(finished / "questions.jsonl")
    assert len(questions) == 4 * len(sets)
    assert {q.meta["prompt"] for q in questions} == {1, 2, 3, 4}
    known = {"split", "category", "item", "p_context", "semantic_level", "covariate_level"}
    assert known <= set(questions[0].meta)


def test_results_are_those_of_an_oracle_that_errs_as_often_as_it_is_told(finished):
    results = read_table(finished / "results.parquet")
    judged = read_table(finished / "judged.parquet")
    whole = results[results["semantic_level"].isna() & results["covariate_level"].isna()]
    row = whole.query("split == 'oric' and part.isna() and metric == 'accuracy'").iloc[0]
    assert row["value"] == pytest.approx(judged.query("split == 'oric'")["correct"].mean())
    assert row["n_asked"] == 64
    answered = results[results["n_asked"].notna()]
    assert set(answered["part"].dropna()) == {f"wording {n}" for n in (1, 2, 3, 4)}


@pytest.mark.slow
def test_a_file_in_the_published_format_gives_the_same_numbers(finished, tmp_path):
    """Its own bench file and predictions, read as those of others would be."""
    files = ",".join(f"{finished}/predictions_{n}.json" for n in range(1, 5))
    given = (
        f"task.bench={finished}/oric_bench.json",
        f"task.predictions=[{files}]",
        "task.pope=[]",
    )
    assert run(tmp_path, *given, "annotations.restyled=0.3", "lvlm=oracle") == 0
    first, again = (
        read_table(folder / "results.parquet").query(
            "split == 'oric' and semantic_level.isna() and n_asked.notna()"
        )
        for folder in (finished, folder_of(tmp_path))
    )
    numbers = ["part", "metric", "value", "n_asked", "n"]
    pd.testing.assert_frame_equal(
        first.loc[first["covariate_level"].isna(), numbers].reset_index(drop=True),
        again.loc[again["covariate_level"].isna(), numbers].reset_index(drop=True),
    )


@pytest.mark.slow
def test_models_are_compared_with_an_earlier_run(finished, tmp_path):
    questions = f"task.questions={finished}/questions.jsonl"
    given = (questions, f"task.against=[{finished}]", "task.pope=[]", "task.report=false")
    assert run(tmp_path, *given, "lvlm=constant") == 0
    table = read_table(folder_of(tmp_path) / "models.csv").set_index("metric")
    assert table.loc["recall_yes", ["a", "b"]].tolist() == ["constant", "oracle"]
    assert table.loc["yes_rate", "value_a"] == 1


@pytest.mark.slow
def test_replies_that_are_not_matched_are_read_by_the_judge(finished, tmp_path, capsys):
    questions = (f"task.questions={finished}/questions.jsonl", "task.pope=[]", "task.report=false")
    vague = ("lvlm=constant", "lvlm.text=It does look like it.")
    assert run(tmp_path, *questions, *vague) == 0
    plain = folder_of(tmp_path)
    judge = ("judge=constant", "judge.text=A", "task.second_step=judge", "~judge.quantile")
    base = [a for a in SMALL if not a.startswith("judge")]
    line = ("eval.py", "task=oric", *base, f"paths.outputs={tmp_path}", *questions, *vague)
    assert call(*line, *judge[:3]) == 0
    judged = read_table(folder_of(tmp_path, [plain]) / "judged.parquet")
    assert (judged["parsed"] == "yes").all()
    assert (judged["matched_by"] == "judge").all()
    before = read_table(plain / "judged.parquet")
    assert (before["status"] == "unparsed").all()


@pytest.mark.slow
def test_what_a_judge_does_not_answer_is_asked_again_before_anything_is_built(tmp_path, capsys):
    """Its replies decide on the questions, which a chat model would then be paid to answer."""

    def reply(_path, body):
        broken = len(server.asked) > 5 and not server.is_well
        message = {"role": "assistant", "content": "Yes" if len(str(body)) % 2 else "No"}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return (500, {"error": {"message": "boom"}}) if broken else (200, {"choices": [choice]})

    base = [a for a in SMALL if not a.startswith("judge")]
    with LocalServer(reply) as server:
        server.is_well = False
        judge = ("judge=openai", "judge.model=m", f"judge.base_url={server.url}", "judge.retries=0")
        more = ("lvlm=oracle", "task.pope=[]", "task.report=false", "judge.concurrency=1")
        line = ("eval.py", "task=oric", *base, f"paths.outputs={tmp_path}", *judge, *more)
        assert call(*line, "judge.give_up_after=1000") == 1
        (error,) = capsys.readouterr().err.strip().splitlines()
        assert "the judge has not answered" in error
        assert "repeat the command" in error
        assert not list(tmp_path.rglob("questions.jsonl"))
        server.is_well, before = True, {json.dumps(body) for body in server.asked[:5]}
        asked = len(server.asked)
        assert call(*line, "judge.give_up_after=1000") == 0
        assert not before & {json.dumps(body) for body in server.asked[asked:]}
    assert list(tmp_path.rglob("questions.jsonl"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("task.bench={f}/oric_train.json", "task.pope=[]"), "those of a training file"),
        (("task.questions={f}/questions.jsonl",), "task.pope"),
        (("task.against=[{f}/figures]",), "is not a run folder of ORIC"),
        (("task.parser=popee",), "pope"),
        (("task.construct.pairs=0",), "task.construct.pairs=0: give"),
        (("task.second_step=judge",), "needs a language model"),
        (("task.thresholds=[96,24]",), "ascending"),
        (("task.pope_subset=7",), "multiple of 2"),
        (("task.construct.min_categories=40",), "no image has 40 categories"),
        (("task.construct.k=9",), "none of"),
        (
            ("task.bench={f}/oric_bench.json", "task.pope=[]", "annotations.seed=5"),
            "task.images=DIR",
        ),
        (
            ("task.bench={f}/oric_bench.json", "task.pope=[]", "task.images={f}/x"),
            "does not exist",
        ),
    ],
)
def test_wrong_inputs_are_one_error(finished, tmp_path, capsys, arguments, message):
    given = [a.format(f=finished) for a in arguments]
    assert run(tmp_path, "lvlm=oracle", *given) == 1
    shown = capsys.readouterr()
    assert message in " ".join((shown.out + shown.err).split())


def test_the_manifest_says_what_made_the_questions(finished):
    manifest = json.loads((finished / "manifest.json").read_text())
    assert manifest["oric"]["found"] == 4
    assert manifest["judge"]["quantile"] == 0.6
    assert manifest["clip"]["text"] == "a photo of a {}"
