"""Questions about builtin scenes with their answers, as the benchmarks ask them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from ood_lab.builtin.scenes import PLACES, THINGS
from ood_lab.builtin.scenes.drawings.colours import COLOURS
from ood_lab.builtin.scenes.things import STATE_WORDS
from ood_lab.builtin.vessels.captions import with_article
from ood_lab.common.files import packaged_table

_WORDINGS = packaged_table("ood_lab.builtin.vlm", "wordings.yaml")
_PRESENT, _NUMBERS = _WORDINGS["present"], _WORDINGS["numbers"]


@dataclass(frozen=True)
class VisibleObject:
    """An object as far as questions are about it.

    Attributes:
        name: key of ``THINGS``.
        centre: of its box, shares of the image's width and height.
        area: visible pixels.
        attributes: what its picture shows of it: ``colour``, ``state`` or ``action``.
    """

    name: str
    centre: tuple[float, float]
    area: int
    attributes: dict[str, str]


@dataclass(frozen=True)
class SeenScene:
    """A scene as far as questions are about it."""

    place: str
    objects: tuple[VisibleObject, ...]

    @cached_property
    def counts(self) -> Counter[str]:
        """How many of each kind there are, the largest first."""
        ordered = sorted(self.objects, key=lambda seen: -seen.area)
        return Counter(seen.name for seen in ordered)

    def absent(self, rng: random.Random) -> str:
        """A kind that is not there: as often one that the place expects as any."""
        expected = [name for name in PLACES[self.place].prior if name not in self.counts]
        everything = [name for name in THINGS if name not in self.counts]
        return rng.choice(expected if expected and rng.random() < 0.5 else everything)


Dialogue = tuple[str, str]
"""A question and its answer."""


def dialogues(scene: SeenScene, rng: random.Random, number: int) -> list[Dialogue]:
    """Questions of all kinds about a scene that has objects, yes and no equally likely."""
    makers = rng.choices(list(_MAKERS), list(_MAKERS.values()), k=number)
    return [made for made in (make(scene, rng) for make in makers) if made is not None]


def presence(name: str, present: bool, rng: random.Random) -> Dialogue:
    """Whether something is there, in one of the wordings of the benchmarks."""
    if rng.random() < 0.35:
        wording = _WORDINGS["absent"][rng.random() < 0.1]
        return wording.format(name=name), _yes(not present)
    wording = _PRESENT[0] if rng.random() < 0.5 else rng.choice(_PRESENT[1:])
    # Long ones cost most of the training, so they are rare.
    text = wording.format(name=name, a_name=with_article(name))
    if wording not in _PRESENT[:2]:
        around = rng.choices(_WORDINGS["around"], (0.79, 0.07, 0.07, 0.07))[0]
        text = around.format(text=text)
    return text, _yes(present)


def plural(name: str) -> str:
    """``mugs``; names end in their noun."""
    words = name.split()
    last = words[-1]
    ending = "es" if last.endswith(("s", "sh", "ch", "x")) else "s"
    many = f"{last[:-1]}ies" if last.endswith("fly") else f"{last}{ending}"
    return " ".join([*words[:-1], _WORDINGS["plurals"].get(last, many)])


def caption(scene: SeenScene) -> str:
    """``A kitchen with two mugs and a bowl.``: the place, then all objects, the largest first."""
    parts = [
        with_article(name) if together == 1 else f"{_NUMBERS[together]} {plural(name)}"
        for name, together in scene.counts.items()
    ]
    listed = parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
    place = with_article(scene.place)
    return f"{place[0].upper()}{place[1:]} with {listed}."


def _yes(truth: bool) -> str:
    return "Yes" if truth else "No"


def _presence(scene: SeenScene, rng: random.Random) -> Dialogue:
    present = rng.random() < 0.5
    name = rng.choice(list(scene.counts)) if present else scene.absent(rng)
    return presence(name, present, rng)


def count(scene: SeenScene, rng: random.Random) -> Dialogue:
    """How many there are of a kind; of one in five, none."""
    name = rng.choice(list(scene.counts)) if rng.random() < 0.8 else scene.absent(rng)
    asked = rng.choice((name, plural(name)))
    return f"How many {asked} are there in the picture?", str(scene.counts[name])


def compare(scene: SeenScene, rng: random.Random) -> Dialogue | None:
    """Which of two kinds there are more of, yes as often as no where that is possible."""
    names = list(scene.counts)
    names += [scene.absent(rng)]
    first, second = rng.sample(names, 2)
    if (scene.counts[first] > scene.counts[second]) != (rng.random() < 0.5):
        first, second = second, first
    truth = scene.counts[first] > scene.counts[second]
    return _WORDINGS["compare"].format(first=first, second=second), _yes(truth)


def _describe(scene: SeenScene, rng: random.Random) -> Dialogue:
    return rng.choice(_WORDINGS["describe"]), caption(scene)


def _number(scene: SeenScene, rng: random.Random) -> Dialogue:
    name = rng.choice(list(scene.counts))
    together = scene.counts[name]
    truth = rng.random() < 0.5
    others = [n for n in (1, 2, 3, 4) if n != together]
    shown = together if truth or not others else rng.choice(others)
    verb = "Is" if shown == 1 else "Are"
    asked = name if shown == 1 or rng.random() < 0.5 else plural(name)
    where = rng.choice(_WORDINGS["where"])
    return f"{verb} there {_NUMBERS[shown]} {asked} {where}?", _yes(shown == together)


def attribute(scene: SeenScene, rng: random.Random) -> Dialogue | None:
    """A colour, a state or an action of a kind of which there is one object."""
    single = [s for s in scene.objects if scene.counts[s.name] == 1 and s.attributes]
    if not single:
        return None
    seen = rng.choice(single)
    kind = rng.choice(list(seen.attributes))
    word, truth = seen.attributes[kind], rng.random() < 0.5
    if kind == "colour" and rng.random() < 0.3:
        return f"What colour is the {seen.name}?", word.capitalize()
    if not truth:
        states = THINGS[seen.name].states
        others = [c for c in COLOURS if c != word]
        word = rng.choice(others) if kind == "colour" or states is None else states.other(word)
    where = rng.choice(_WORDINGS["where"])
    verb = "Does" if kind == "action" else "Is"
    return f"{verb} the {seen.name} {word} {where}?", _yes(truth)


def _place(scene: SeenScene, rng: random.Random) -> Dialogue:
    return "What kind of place is this?", scene.place.capitalize()


_MAKERS: dict[Callable[[SeenScene, random.Random], Dialogue | None], float] = {
    _presence: 0.6,
    count: 0.11,
    compare: 0.08,
    _describe: 0.06,
    _number: 0.04,
    attribute: 0.09,
    _place: 0.02,
}


def corpus() -> list[str]:
    """Every wording with every word: what the tokenizer is made from."""
    rng = random.Random(0)
    words: Sequence[str] = [*THINGS, *PLACES, *COLOURS, *_NUMBERS]
    texts = [f"a {word}" for word in (*words, *STATE_WORDS)] * 20
    texts += [f"{word} {plural(word)}" for word in THINGS] * 20
    texts += [str(number) for number in range(10)] * 20
    texts += [f"{word.capitalize()}" for word in (*COLOURS, *PLACES, "Yes", "No")] * 20
    names = list(THINGS)
    for _ in range(4000):
        chosen = rng.choices(names, k=rng.randint(2, 6))
        attributes = {"colour": rng.choice(list(COLOURS))}
        objects = tuple(
            VisibleObject(n, (0.5, 0.5), rng.randint(6, 900), attributes) for n in chosen
        )
        scene = SeenScene(rng.choice(list(PLACES)), objects)
        texts += [part for pair in dialogues(scene, rng, 4) for part in pair]
    return texts
