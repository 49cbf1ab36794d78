"""``task.parser=reader``: a chat model on this machine says what open answers mean."""

import json

import pytest
from cli import call, run_folders
from local_server import LocalServer
from PIL import Image

from ood_lab.common.files import read_table
from ood_lab.lvlm.answers.answer_requests import answer_of
from ood_lab.lvlm.answers.open_answer_reader import parsers_of, read_by_reader
from ood_lab.lvlm.chat.base import Reply
from ood_lab.lvlm.questions.question_files import Question, read_questions, write_questions

#: Reply, what the reader says of it (None: it is not asked), and what counts in the end.
REPLIES = [
    ("Yes.", None, "yes"),
    ("It certainly looks that way.", "Yes", "yes"),
    ("I see nothing of the kind. No mug, though yes, a cup.", "no.", "no"),
    ("Who can say?", "unclear", None),
    ("<think>Hm, yes?</think>Not that I can see.", "No", "no"),
    ("<think>only thoughts", None, None),
]


@pytest.fixture
def server():
    """Reads an answer as :data:`REPLIES` says; fails where ``fails`` is set."""

    def reply(_path, body):
        text = body["messages"][0]["content"][0]["text"]
        if server.fails and "Who can say" in text:
            return 500, {"error": {"message": "boom"}}
        assert "<think>" not in text
        said = next(s for r, s, _ in REPLIES if s and r.split(">")[-1] in text)
        choice = {"index": 0, "message": {"role": "assistant", "content": said}}
        return 200, {"choices": [choice | {"finish_reason": "stop"}]}

    with LocalServer(reply) as server:
        server.fails = False
        yield server


@pytest.fixture
def ask(tmp_path, server):
    """Scores the replies; takes further arguments of the command line."""
    Image.new("RGB", (8, 8), "red").save(tmp_path / "red.png")
    asked = [
        Question(f"q{i}", "yes_no", "red.png", f"Is it {i}?", "yes", pair_id=f"p{i // 2}")
        for i in range(len(REPLIES))
    ]
    write_questions(asked, tmp_path / "questions.jsonl")
    lines = [{"question_id": f"q{i}", "response": r} for i, (r, _, _) in enumerate(REPLIES)]
    (tmp_path / "said.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    line = (
        "task=questions",
        f"task.questions={tmp_path}/questions.jsonl",
        "metrics.n_bootstrap=20",
    )
    line += ("lvlm=replay", f"lvlm.path={tmp_path}/said.jsonl", "logger=none")
    line += ("task.report=false", f"paths.outputs={tmp_path}/out", "task.unparsed=wrong")
    return lambda *more: call("eval.py", *line, *more)


def reader(server):
    address = f"reader.base_url={server.url}"
    return "task.parser=reader", "reader=openai", "reader.model=r", address, "reader.retries=0"


@pytest.mark.slow
def test_the_reader_says_what_open_answers_mean_and_is_paid_once(ask, server, tmp_path):
    assert ask(*reader(server)) == 0
    (run,) = run_folders(tmp_path / "out")
    judged = read_table(run / "judged.parquet")
    found = [None if value != value else value for value in judged["parsed"]]
    assert found == [meant for _, _, meant in REPLIES]
    assert judged["correct"].tolist() == [meant == "yes" for _, _, meant in REPLIES]
    by = ["reader" if said and meant else "" for _, said, meant in REPLIES]
    assert judged["matched_by"].tolist() == by
    assert judged["status"].tolist().count("unparsed") == 2
    assert len(server.asked) == sum(said is not None for _, said, _ in REPLIES)
    assert json.loads((run / "manifest.json").read_text())["reader"]["model"] == "r"
    assert ask(*reader(server), "metrics.n_bootstrap=30") == 0
    assert len(server.asked) == 4


class Reads:
    """Says of an answer what is listed, and notes what it is shown."""

    def __init__(self, says):
        self.says, self.shown = says, []

    def replies(self, _kind, texts):
        texts = list(texts)
        self.shown += texts
        return {
            text: next(v for k, v in self.says.items() if f"Answer: {k}\n" in text)
            for text in texts
        }


def test_the_reader_reads_counts_and_choices_too():
    options = "Which is it?\nA. dog\nB. cat"
    rows = [  # kind of question, reply, what the reader says of it (None: it is not shown), meaning
        ("number", "4", None, "4"),
        ("number", "As many as a hand has fingers.", "5", "5"),
        ("number", "Three, four, who knows.", "unclear", None),
        ("choice", "B", None, "B"),
        ("choice", "The one that purrs.", "It means B.", "B"),
        ("choice", "Both.", "unclear", None),
        ("text", "Both.", None, "both."),
    ]
    questions = [
        Question(f"q{n}", name, None, options if name == "choice" else "How many dogs?", "B", name)
        for n, (name, *_) in enumerate(rows)
    ]
    answers = {
        f"q{n}": answer_of(Question(f"q{n}", name, None, "", "B"), "h", {}, Reply("k", reply))
        for n, (name, reply, _, _) in enumerate(rows)
    }
    model = Reads({reply: says for _, reply, says, _ in rows if says})
    judged = read_by_reader(questions, answers, model)
    assert [x if isinstance(x, str) else None for x in judged["parsed"]] == [r[3] for r in rows]
    assert len(model.shown) == 4
    assert judged["parser"].tolist() == ["reader"] * 6 + ["text"]
    assert judged["matched_by"].tolist().count("reader") == 2
    assert list(parsers_of(questions, "reader")) == ["reader", "text"]


def test_what_the_reader_did_not_read_is_shown_to_it_again(ask, server, tmp_path, capsys):
    server.fails = True
    assert ask(*reader(server)) == 1
    assert "the reader has not answered 1 of 4" in " ".join(capsys.readouterr().err.split())
    server.fails = False
    assert ask(*reader(server)) == 0
    assert len(server.asked) == 5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("task.parser=reader",), "reader=openai, for example"),
        (("reader=constant",), "needs task.parser=reader"),
        (("task.parser=readr",), "reader"),
    ],
)
def test_wrong_inputs_are_one_line(ask, capsys, arguments, message):
    assert ask(*arguments) == 1
    shown = capsys.readouterr()
    assert message in " ".join((shown.out + shown.err).split())


@pytest.mark.slow
def test_new_questions_name_a_parser_of_texts(tmp_path):
    line = ("task=oodbench", "annotations.n=60", "lvlm=constant", "logger=none")
    line += ("reader=constant", "task.parser=reader", "task.until=build")
    assert call("eval.py", *line, f"paths.outputs={tmp_path}") == 0
    (file,) = tmp_path.rglob("questions.jsonl")
    assert {question.parser for question in read_questions(file)} == {"default", "number"}
