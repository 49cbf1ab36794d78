"""Two nodes, here on one machine, give the numbers of one process."""

import os
import socket
import subprocess
import sys

import pandas as pd
import pytest
from cli import ROOT, call, run_folders
from local_server import LocalServer
from PIL import Image

from ood_lab.lvlm.questions.question_files import Question, write_questions

pytestmark = pytest.mark.slow
SMALL = ("experiment=smoke", "logger=none", "task.report=false")
TWO = ("trainer=ddp_cpu", "trainer.devices=1", "trainer.num_nodes=2")


def by_hand(node, port):
    """What users of Lightning set on every node; it starts the other processes itself."""
    own = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "NODE_RANK": str(node)}
    return [sys.executable], own


def by_torchrun(node, port):
    where = (f"--node-rank={node}", "--master-addr=127.0.0.1", f"--master-port={port}")
    return [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", *where], {}


def on_two_nodes(start, script, *arguments):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    nodes = []
    for node in (0, 1):
        command, own = start(node, port)
        line = [*command, str(ROOT / script), *TWO, *arguments]
        environment = os.environ | {"PYTHONPATH": str(ROOT), "GLOO_SOCKET_IFNAME": "lo"} | own
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        nodes.append(subprocess.Popen(line, env=environment, **pipes))
    printed = [node.communicate(timeout=300)[0] for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], printed
    return printed


def results(folder):
    (run,) = run_folders(folder / "outputs")
    return pd.read_parquet(run / "results.parquet")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    line = (*SMALL, "task=score", "detector=[msp]", f"paths.root={folder}")
    assert call("train.py", *line) == 0
    (run,) = run_folders(folder / "outputs")
    return run


@pytest.mark.parametrize(
    ("start", "task"),
    [
        (by_hand, "score"),
        (by_torchrun, "score"),
        (by_hand, "shift_scores"),
        (by_torchrun, "shift_scores"),
    ],
)
def test_extracting_scoring_and_measuring(tmp_path, trained, start, task):
    of_task = {"score": (f"ckpt={trained}", "detector=[msp,knn]"), "shift_scores": ()}[task]
    line = (*SMALL, f"task={task}", *of_task)
    assert call("eval.py", *line, f"paths.root={tmp_path / 'one'}") == 0
    first, second = on_two_nodes(start, "eval.py", *line, f"paths.root={tmp_path / 'two'}")
    pd.testing.assert_frame_equal(results(tmp_path / "two"), results(tmp_path / "one"))
    shards = (tmp_path / "two/outputs/features").glob("*/base-*-of-00002-*.safetensors")
    assert {shard.name.split("-")[1] for shard in shards} == {"00000", "00001"}
    assert "Results: " in first
    assert "Results: " not in second


def test_a_server_is_asked_every_question_once(tmp_path):
    """By the first process: whatever the number of nodes, the server is what scales."""
    Image.new("RGB", (8, 8), "red").save(tmp_path / "red.png")
    questions = [
        Question(
            f"{kind}{n}",
            "yes_no",
            "red.png",
            f"Is there {kind} {n}?",
            right,
            pair_id=n,
            meta={"split": "ood_h"},
        )
        for n in ("mug", "boat", "cat")
        for kind, right in (("a", "yes"), ("no", "no"))
    ]
    file = tmp_path / "questions.jsonl"
    write_questions(questions, file)
    message = {"role": "assistant", "content": "Yes"}
    said = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    with LocalServer(lambda *_: (200, said)) as server:
        model = ("lvlm=openai", "lvlm.model=m", f"lvlm.base_url={server.url}")
        line = (
            "task=oodbench",
            *SMALL[1:],
            "metrics.n_bootstrap=20",
            *model,
            f"task.questions={file}",
        )
        assert call("eval.py", *line, f"paths.root={tmp_path / 'one'}") == 0
        assert len(server.asked) == len(questions)
        on_two_nodes(by_hand, "eval.py", *line, f"paths.root={tmp_path / 'two'}")
        assert len(server.asked) == 2 * len(questions)
    pd.testing.assert_frame_equal(results(tmp_path / "two"), results(tmp_path / "one"))
