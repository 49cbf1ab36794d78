"""The page of all answers, opened from its file in a browser without a window."""

import html
import json
import re
import shutil
import subprocess
from dataclasses import replace

import pandas as pd
import pytest
from cli import call, run_folders
from PIL import Image

from ood_lab.lvlm.answers.answer_requests import answer_of
from ood_lab.lvlm.answers.judgements import judge
from ood_lab.lvlm.chat.base import Reply
from ood_lab.lvlm.pages import answers_page
from ood_lab.lvlm.pages.answers_page import write_answers_page
from ood_lab.lvlm.pages.benchmark_page import ScoredRun
from ood_lab.lvlm.questions.question_files import Question
from ood_lab.schema.run_record import RunRecord

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
RECORD = RunRecord(title="Many", benchmark={"page": "many.html"})
in_a_browser = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")


def opened(page, address="", *options):
    """What a browser shows of a page: its document once all scripts have run."""
    line = [
        str(CHROMIUM),
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--virtual-time-budget=8000",
    ]
    line += [*options, "--dump-dom", f"file://{page}#{address}"]
    return subprocess.run(line, capture_output=True, text=True, timeout=60, check=True).stdout


def shown(document):
    """Ids of the answers that a document shows."""
    return [html.unescape(each) for each in re.findall(r"<dt>id</dt><dd>(.*?)</dd>", document)]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run with answers that are right, wrong, unparsed and failed."""
    place = tmp_path_factory.mktemp("answers")
    Image.new("RGB", (20, 10), "red").save(place / "red one.png")
    replies = [
        "Yes.",
        "No, <b>none</b> at all.",
        "I would rather not say.",
        None,
        "<think>Hm.</think>Yes",
    ]
    rows = [
        {
            "question_id": f"q{n}",
            "image": "red one.png",
            "text": f"Is there a dog no. {n}? (yes or no)",
            "answer": "yes",
            "split": "new" if n % 2 else "old",
            "category": "dog & co",
            "semantic_level": n % 3,
        }
        for n in range(5)
    ]
    (place / "q.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    lines = [
        {"question_id": f"q{n}", "response": r} for n, r in enumerate(replies) if r is not None
    ]
    (place / "answers.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    given = (f"task.questions={place}/q.jsonl", f"task.answers={place}/answers.jsonl")
    places = (f"paths.outputs={place}/out", "metrics.n_bootstrap=20", "logger=none")
    # A file that knows little of what was asked must have an answer to every question.
    assert call("eval.py", "task=questions", *given, *places) == 1
    lines.insert(3, {"question_id": "q3", "response": ""})
    (place / "answers.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert call("eval.py", "task=questions", *given, *places) == 0
    return run_folders(place / "out")[-1]


def test_answers_of_any_package_are_scored(run):
    judged = pd.read_parquet(run / "judged.parquet").set_index("question_id")
    assert judged["status"].tolist() == ["parsed", "parsed", "unparsed", "unparsed", "parsed"]
    assert judged["correct"].tolist() == [True, False, False, False, True]
    csv = pd.read_csv(run / "judged.csv", keep_default_na=False)
    assert csv["reply"].tolist() == judged["reply"].tolist()
    assert json.loads((run / "manifest.json").read_text())["lvlm"]["backend"] == "replay"


def test_it_is_linked(run):
    assert 'href="answers/index.html"' in (run / "questions.html").read_text()
    assert "answers/index.html" in json.dumps(json.loads((run / "summary.json").read_text()))
    assert re.search(
        r'<li><a href="answers/index.html">Every question', (run / "questions.html").read_text()
    )
    assert '<a href="../questions.html">' in (run / "answers" / "index.html").read_text()


@pytest.mark.slow
@in_a_browser
def test_a_browser_shows_everything_of_an_answer(run):
    document = opened(run / "answers" / "index.html", "find=dog+no.+1")
    assert shown(document) == ["q1"]
    for name, value in {
        "question": "Is there a dog no. 1? (yes or no)",
        "reply": "No, &lt;b&gt;none&lt;/b&gt; at all.",
        "parsed as": "no",
        "correct answer": "yes",
        "set": "new",
        "category": "dog &amp; co",
        "shift": "semantic level 1",
    }.items():
        assert f"<dt>{name}</dt><dd>{value}</dd>" in document, name
    source = re.search(r'<img [^>]*src="([^"]*)"', document)
    assert 'loading="lazy"' in document
    assert source[1].endswith("red%20one.png")
    assert (run / "answers" / source[1].replace("%20", " ")).is_file()
    assert "1 of 5 answers, page 1 of 1" in document
    assert "Hm." in opened(run / "answers" / "index.html", "find=no.+4")  # its reasoning


@pytest.mark.slow
@in_a_browser
@pytest.mark.parametrize(
    ("address", "ids"),
    [
        ("", ["q0", "q1", "q2", "q3", "q4"]),
        ("show=wrong", ["q1"]),
        ("show=unparsed", ["q2", "q3"]),
        ("show=right&set=old", ["q0", "q4"]),
        ("set=new&category=dog+%26+co", ["q1", "q3"]),
        ("find=RATHER", ["q2"]),
        ("show=failed", []),
    ],
)
def test_it_filters_and_searches(run, address, ids):
    assert shown(opened(run / "answers" / "index.html", address)) == ids


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """The answers of one model beside those of another, of several kinds; one reply was cut."""
    place = tmp_path_factory.mktemp("models")
    Image.new("RGB", (20, 10), "red").save(place / "outside.png")
    asked = [
        Question("a", "yes_no", "outside.png", "Is it red?", "yes"),
        Question("b", "count", "outside.png", "How many?", "2", parser="number"),
        Question("c", "yes_no", "outside.png", "Is it blue?", "no"),
    ]

    def answers(*replies, **more):
        return {
            q.question_id: answer_of(q, "", {}, Reply("", r, **more))
            for q, r in zip(asked, replies, strict=True)
        }

    own = answers("Yes", "2", "No", p_yes=0.25, finish_reason="stop", usage={"prompt_tokens": 7})
    own["c"] = replace(own["c"], finish_reason="length")
    tables = {"one": own, "two": answers("No", "2", "No")}
    tables = [judge(asked, of).assign(model=name) for name, of in tables.items()]
    scored = ScoredRun(place / "run", place, pd.DataFrame(), {}, {}, RECORD)
    return write_answers_page(scored, asked, own, tables[:1], tables)


def test_the_folder_of_a_run_can_be_sent(models, monkeypatch):
    rows = (models.parent / "rows-000.js").read_text()
    assert rows.count('"images": ["images/0-outside.png"]') == 3
    assert (models.parent / "images" / "0-outside.png").is_file()
    assert "send both together" not in models.read_text()
    monkeypatch.setattr(answers_page, "_MOST_BYTES", 10)
    source = models.parents[2]
    asked = [Question("a", "yes_no", "outside.png", "Is it red?", "yes")]
    scored = ScoredRun(source / "linked", source, pd.DataFrame(), {}, {}, RECORD)
    page = write_answers_page(scored, asked, {}, [judge(asked, {})])
    assert '["../../outside.png"]' in (page.parent / "rows-000.js").read_text()
    assert "Images are in .. from the folder of the run: send both together" in page.read_text()


@pytest.mark.slow
@in_a_browser
def test_models_are_side_by_side_and_filters_find_kinds(models):
    for address, ids in {
        "": ["a", "b", "c"],
        "kind=count": ["b"],
        "truth=no": ["c"],
        "ending=cut": ["c"],
        "models=models+differ": ["a"],
    }.items():
        assert shown(opened(models, address)) == ids, address
    document = opened(models, "models=models+differ")
    for name, value in {
        "P(yes)": "0.250",
        "usage": "prompt tokens 7",
        "finish reason": "stop",
    }.items():
        assert f"<dt>{name}</dt><dd>{value}</dd>" in document
    beside = re.findall(r"<dt>model</dt><dd>(.*?)</dd><dt>reply</dt><dd>(.*?)</dd>", document)
    assert beside == [("one", "Yes"), ("two", "No")]


@pytest.mark.slow
@in_a_browser
@pytest.mark.parametrize("dark", [False, True])
def test_it_is_readable_on_a_telephone_by_day_and_by_night(run, tmp_path, dark):
    picture = tmp_path / "page.png"
    night = ["--blink-settings=preferredColorScheme=0"] if dark else []
    opened(
        run / "answers" / "index.html",
        "",
        *night,
        f"--screenshot={picture}",
        "--window-size=390,900",
    )
    image = Image.open(picture).convert("L")
    assert image.width == 390
    assert (sum(image.histogram()[128:]) > image.width * image.height / 2) != dark


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """A page of 50,000 answers, each 300th wrong."""
    folder = tmp_path_factory.mktemp("many")
    asked = [
        Question(
            str(n), "yes_no", f"{n}.png", f"Is it {n}? (yes or no)", "yes", meta={"split": "s"}
        )
        for n in range(50_000)
    ]
    answers = {
        q.question_id: answer_of(q, "", {}, Reply("", "No" if n % 300 == 0 else "Yes"))
        for n, q in enumerate(asked)
    }
    scored = ScoredRun(folder, folder, pd.DataFrame(), {}, {}, RECORD)
    return write_answers_page(scored, asked, answers, [judge(asked, answers)])


@pytest.mark.slow
def test_many_answers_are_a_light_page(many):
    files = sorted(many.parent.iterdir())
    assert len(files) == 52
    assert many.stat().st_size < 50_000  # what a browser reads first
    assert (many.parent / "index.js").stat().st_size < 500_000
    assert max(file.stat().st_size for file in many.parent.glob("rows-*.js")) < 500_000


@pytest.mark.slow
@in_a_browser
def test_many_answers_are_paged_and_searched(many):
    document = opened(many, "show=wrong&page=4")
    assert "167 of 50000 answers, page 4 of 4" in document
    assert shown(document) == [str(300 * n) for n in range(150, 167)]
    assert shown(opened(many, "find=it+49999%3F")) == ["49999"]
