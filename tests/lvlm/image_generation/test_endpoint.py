"""``generator=openai`` against a server on the loopback."""

import base64
import io
import json

import pytest
from cli import call
from local_server import LocalServer
from PIL import Image

from ood_lab.common.errors import UserError
from ood_lab.lvlm.image_generation.compositions import Composition, Concept
from ood_lab.lvlm.image_generation.endpoint import EndpointGenerator
from ood_lab.lvlm.image_generation.pictures import file_of, make

PAIR = Composition("standard", "ee", Concept("dog"), Concept("umbrella"), 3, 1)
OTHER = Composition("fictional", "ee", Concept("boat"), Concept("cake"), 0, 2)


def image_reply(_path, _body):
    stream = io.BytesIO()
    Image.new("RGB", (32, 32), (200, 30, 30)).save(stream, "PNG")
    return 200, {"data": [{"b64_json": base64.b64encode(stream.getvalue()).decode()}]}


@pytest.fixture
def server():
    """Its ``reply`` makes the replies; ``asked`` has the bodies, ``url`` is its address."""
    with LocalServer(image_reply) as server:
        yield server


def generator_of(server, **settings):
    return EndpointGenerator("painter", server.url, retries=0, **settings)


def test_prompt_and_settings_are_sent_and_no_image_twice(server, tmp_path):
    generator = generator_of(server, arguments={"size": "32x32"})
    generator.check()
    orders = generator.plan([PAIR, OTHER], seed=0)
    assert make(orders, generator, tmp_path, 8) == orders
    assert Image.open(file_of(orders[0], tmp_path)).getpixel((0, 0)) == (200, 30, 30)
    assert {body["prompt"] for body in server.asked} == {order.prompt for order in orders}
    assert {body["size"] for body in server.asked} == {"32x32"}
    make(orders, generator, tmp_path, 8)
    assert len(server.asked) == len(orders)


def test_what_a_server_does_not_know_is_not_sent(server, tmp_path):
    generator = generator_of(server, per_composition=1)
    make(generator.plan([PAIR], seed=0), generator, tmp_path, 8)
    assert [sorted(body) for body in server.asked] == [["model", "n", "prompt"]]


def test_images_made_before_and_after_a_failure_are_kept(server, tmp_path):
    generator = generator_of(server, per_composition=2)
    orders = generator.plan([PAIR, OTHER], seed=0)

    def failing(path, body):
        overloaded = 500, {"error": "overloaded"}
        return overloaded if "boat" in body["prompt"] else image_reply(path, body)

    server.reply = failing
    with pytest.raises(UserError, match="2 of 4 images could not be made"):
        make([orders[2], orders[0], orders[3], orders[1]], generator, tmp_path, 8)
    assert [file_of(order, tmp_path).exists() for order in orders] == [True, True, False, False]
    server.reply, server.asked = image_reply, []
    assert make(orders, generator, tmp_path, 8) == orders
    assert len(server.asked) == 2


def test_a_prompt_that_is_refused_leaves_its_image_out(server, tmp_path):
    generator = generator_of(server, per_composition=1)
    orders = generator.plan([PAIR, OTHER], seed=0)
    refusal = 400, {"error": {"code": "content_policy_violation", "message": "no"}}
    server.reply = lambda path, body: (
        refusal if "boat" in body["prompt"] else image_reply(path, body)
    )
    assert make(orders, generator, tmp_path, 8) == orders[:1]


def test_an_image_without_a_reply_in_time_is_paid_twice_at_most(server, tmp_path):
    generator = EndpointGenerator("painter", server.url, per_composition=1)
    server.reply = lambda *_: (504, {"error": "gateway"}, {"retry-after": "0"})
    with pytest.raises(UserError, match="the server may charge for it twice"):
        make(generator.plan([PAIR], seed=0), generator, tmp_path, 8)
    assert len(server.asked) == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reply", "words"),
    [
        ((401, {"error": "key sk-secret is wrong"}), "rejects the key in.* MY_KEY"),
        ((404, "<html>nothing here</html>"), "answers with a web page"),
        ((200, "<html>welcome</html>"), "answers with a web page"),
        ((200, {"data": [{"url": "http://elsewhere"}]}), "response_format=b64_json"),
        ((200, {"data": []}), "no image in the reply"),
        ((200, {"data": [{"b64_json": "AAAA"}]}), "holds no image"),
    ],
)
def test_other_replies_are_one_line_without_the_key(server, tmp_path, monkeypatch, reply, words):
    monkeypatch.setenv("MY_KEY", "sk-secret")
    generator = generator_of(server, api_key_env="MY_KEY", per_composition=1)
    server.reply = lambda *_: reply
    with pytest.raises(UserError, match=words) as caught:
        make(generator.plan([PAIR], seed=0), generator, tmp_path, 8)
    assert "sk-secret" not in str(caught.value)


def test_a_benchmark_is_made_by_it(server, tmp_path, capsys, caplog):
    settings = (
        "task=ode",
        "annotations.n=60",
        "metrics.n_bootstrap=20",
        "logger=none",
        "image_text=[]",
    )
    settings += ("task.construction.limit=1", "task.filter=null", "task.report=false")
    endpoint = ("generator=openai", "generator.model=painter", "lvlm=oracle")
    out = f"paths.outputs={tmp_path}"
    address = f"generator.base_url={server.url}"
    assert call("eval.py", *settings, *endpoint, address, out) == 0
    made = list(tmp_path.glob("ode-*/*/seed=0/images/*/*.png"))
    assert len(made) == len(server.asked) >= 8
    (manifest,) = tmp_path.glob("ode-*/*/seed=0/manifest.json")
    told = json.loads(manifest.read_text())["generator"]
    assert told["generator"] == "openai"
    assert told["model"] == "painter"
    down = "generator.base_url=http://127.0.0.1:9/v1"
    assert call("eval.py", *settings, *endpoint, down, out) == 1
    assert "nothing answers at generator.base_url" in caplog.text + capsys.readouterr().err
