import json
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from small_concepts import SMALL

from ood_lab.builtin.scenes.generator import SceneRenderer
from ood_lab.common.errors import UserError
from ood_lab.common.files import write_csv
from ood_lab.lvlm.concepts.concepts import Attribute, graphs_of
from ood_lab.lvlm.image_generation.compositions import Composition, Concept
from ood_lab.lvlm.image_generation.diffusion import DiffusionGenerator
from ood_lab.lvlm.image_generation.image_filter import (
    Filter,
    audited,
    confidences_of,
    summary,
)
from ood_lab.lvlm.image_generation.pictures import (
    PLAN,
    AnnotatedPicture,
    balanced,
    make,
    pictures_of,
)
from ood_lab.lvlm.image_generation.prompt_generator import Variant

DOG = Concept("dog", Attribute("brown", "white"), Attribute("sit", "stand"))
PAIR = Composition("standard", "ee", DOG, Concept("umbrella", Attribute("open", "closed")), 3, 1)
PLACED = Composition("fictional", "ev", DOG, Concept("kitchen"), 0, 2)


def test_renderer_draws_one_scene_in_every_style():
    renderer = SceneRenderer(size=64, styles=["photo", "sketch"], per_composition=2)
    orders = renderer.plan([PAIR, PLACED], seed=0)
    assert len(orders) == 8
    assert len({order.file for order in orders}) == 8
    photo, sketch = orders[:2]
    assert photo.seed == sketch.seed
    assert photo.states == (Attribute("brown", "white"), Attribute("open", "closed"))
    assert sketch.states == (None, Attribute("open", "closed"))  # a drawing has no colours
    assert sketch.actions == (Attribute("sit", "stand"), None)
    assert (photo.meta["covariate_level"], sketch.meta["covariate_level"]) == (0, 4)
    images = renderer.images(orders[:2])
    assert images[0].size == (64, 64)
    assert np.abs(np.asarray(images[0], float) - np.asarray(images[1], float)).mean() > 5
    assert renderer.images(orders[:1])[0] == images[0]


def test_renderer_knows_what_else_is_there():
    first, last = SceneRenderer(size=64).plan([PAIR, PLACED], seed=0)
    assert first.also == (first.meta["place"],)
    assert last.also == ()
    assert last.meta["place"] == "kitchen"
    assert last.meta["semantic_level"] > 0


def test_renderer_leaves_out_what_it_cannot_draw():
    graph = SceneRenderer().drawable(graphs_of(SMALL)["T"])
    assert set(graph) == {"dog", "person", "boat"}
    assert graph.nodes["dog"]["state"] == []  # nothing is wet or dry there
    assert graph.nodes["person"]["action"] == [("wave", "stand")]


@pytest.mark.parametrize(
    ("settings", "words"),
    [({"styles": ["foto"]}, "foto"), ({"size": 30}, "30"), ({"share": (0.0, 0.5)}, "share")],
)
def test_renderer_refuses_what_makes_no_sense(settings, words):
    with pytest.raises(UserError, match=words):
        SceneRenderer(**settings)


class Counting:
    """A generator that counts its images, and dies at the third."""

    def __init__(self, die_at=None):
        self.made, self.die_at = [], die_at
        self.made_with = {"generator": "counting"}

    def images(self, orders):
        found = []
        for order in orders:
            if len(self.made) == self.die_at:
                raise KeyboardInterrupt
            self.made.append(order.file)
            found.append(Image.new("RGB", (8, 8), (order.seed % 256, 0, 0)))
        return found


def test_no_image_is_made_twice(tmp_path):
    orders = SceneRenderer(size=64, per_composition=3).plan([PAIR, PLACED], seed=0)
    dying = Counting(die_at=3)
    with pytest.raises(KeyboardInterrupt):
        make(orders, dying, tmp_path, batch_size=1)
    again = Counting()
    assert make(orders, again, tmp_path, batch_size=1) == orders
    assert set(again.made) == {o.file for o in orders} - set(dying.made)
    last = Counting()
    make(orders, last, tmp_path, batch_size=1)
    assert not last.made
    plan = [json.loads(line) for line in (tmp_path / PLAN).read_text().splitlines()]
    assert plan[0] == {"made_with": {"generator": "counting"}}
    assert [row["seed"] for row in plan[1:]] == [order.seed for order in orders]


def test_a_folder_of_another_generator_is_refused(tmp_path):
    orders = SceneRenderer(size=64).plan([PAIR], seed=0)
    make(orders, Counting(), tmp_path, batch_size=1)
    other = Counting()
    other.made_with = {"generator": "another"}
    with pytest.raises(UserError, match="another generator"):
        make(orders, other, tmp_path, batch_size=1)


def test_prompts_seeds_and_variants_of_a_pipeline():
    ways = {"ee": [Variant(" one", "bad", {"guidance_scale": 7}), Variant(" two")]}
    orders = DiffusionGenerator(
        path="x", form="code", per_composition=3, seeds=(31339,), variants=ways
    ).plan([PAIR], seed=0)
    text = "a brown sit dog and a open umbrella"
    assert [order.prompt for order in orders] == [f"{text} one", f"{text} two", f"{text} one"]
    assert orders[0].seed == 31339
    assert len({order.seed for order in orders}) == 3
    assert (orders[0].negative_prompt, orders[0].settings) == ("bad", {"guidance_scale": 7})
    assert "mutated" in orders[1].negative_prompt


def test_a_pipeline_that_is_not_there_is_named(tmp_path):
    with pytest.raises(UserError, match=r"generator\.path"):
        DiffusionGenerator().check()


LABELS = ["dog", "umbrella", "cat", "kitchen"]


def orders_of(count):
    return SceneRenderer(size=64, per_composition=count).plan([PAIR], seed=0)


def test_filter_asks_for_both_entities_and_lists_what_else_is_seen():
    seen = np.array([[0.9, 0.7, 0.8, 0.0], [0.9, 0.2, 0.1, 0.0]], np.float32)
    table = Filter(min_conf=0.65).table(orders_of(2), seen, LABELS)
    assert table["kept"].tolist() == [True, False]
    assert table["detected"].tolist() == ["cat", ""]
    assert summary(table) == {"standard": {"made": 2, "kept": 1}}


def test_environments_are_not_asked_for():
    orders = SceneRenderer(size=64).plan([PLACED], seed=0)
    seen = np.array([[0.9, 0.0, 0.0, 0.1]], np.float32)
    assert Filter().table(orders, seen, LABELS)["kept"].all()


def test_a_scene_is_kept_in_all_styles_or_in_none():
    orders = SceneRenderer(size=64, styles=["photo", "ink"], per_composition=2).plan([PAIR], seed=0)
    seen = np.zeros((4, 4), np.float32)
    seen[[0, 3]] = 0.9  # a photo of the first scene, an ink drawing of the second
    assert Filter().table(orders, seen, LABELS)["kept"].tolist() == [True, False, False, True]
    table = Filter(by_scene=True).table(orders, seen, LABELS)
    assert table["kept"].tolist() == [True, True, False, False]


def test_a_person_has_the_last_word(tmp_path):
    seen = np.array([[0.9, 0.9, 0, 0], [0.1, 0.1, 0, 0]], np.float32)
    table = Filter().table(orders_of(2), seen, LABELS)
    write_csv(table.assign(verdict=["reject", "Accept"]), tmp_path / "audit.csv")
    assert audited(table, tmp_path / "audit.csv")["kept"].tolist() == [False, True]
    write_csv(table.assign(verdict=["maybe", ""]), tmp_path / "audit.csv")
    with pytest.raises(UserError, match="maybe"):
        audited(table, tmp_path / "audit.csv")


class Scores:
    """An image-text model that gives every image the same scores."""

    def scores(self, images, labels):
        return np.log(np.tile([4.0, 3.0, 2.0, 1.0], (len(images), 1)))


class Boxes(Scores):
    """A detector."""

    def confidences(self, images, labels):
        return np.full((len(images), len(labels)), 0.5, np.float32)


def test_confidence_of_an_image_text_model_is_purified():
    (order,) = orders_of(1)
    found = confidences_of(Scores(), ["a.png"], [order], LABELS)
    # dog and umbrella are asked for; cat and kitchen are what they are held against, unless the
    # dog stands in a kitchen.
    rest = 2.0 + (order.also != ("kitchen",))
    assert found[0, :2] == pytest.approx([4 / (4 + rest), 3 / (3 + rest)])
    assert found[0, 2] == pytest.approx(2 / 10)
    assert (confidences_of(Boxes(), ["a.png"], [order], LABELS) == 0.5).all()


def test_pictures_leave_out_what_is_detected():
    graph = graphs_of(SMALL)["T"]
    order = SceneRenderer(size=64).plan(
        [Composition("standard", "ee", Concept("dog"), Concept("boat"))], seed=0
    )[0]
    (picture,) = pictures_of([order], graph, detected={order.file: ["person"]})
    assert picture.truth == ("dog", "boat")  # no place of the renderer is a concept of this graph
    assert picture.hallu == ("sea", "sky")
    (picture,) = pictures_of([order], graph)
    assert "person" in picture.hallu


def test_balance_is_down_to_the_rarest_criterion():
    many = [
        AnnotatedPicture(f"{i}.png", "standard" if i % 3 else "random", "ee", ("a", "b"))
        for i in range(12)
    ]
    kept = balanced(many, seed=0)
    assert [sum(p.criterion == name for p in kept) for name in ("standard", "random")] == [4, 4]
    assert kept == balanced(many, seed=0)
    assert kept == sorted(kept, key=lambda p: int(p.file.split(".")[0]))


def test_balance_keeps_all_styles_of_a_scene():
    many = [
        AnnotatedPicture(
            f"{i}{style}.png", criterion, "ee", ("a", "b"), meta={"scene": f"{criterion}{i}"}
        )
        for criterion, count in (("standard", 5), ("random", 2))
        for i in range(count)
        for style in ("photo", "ink")
    ]
    kept = balanced([replace(p, file=p.criterion + p.file) for p in many], seed=0)
    assert len(kept) == 8
    assert len({p.meta["scene"] for p in kept}) == 4
