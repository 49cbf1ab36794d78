"""Shapes as data: what a YAML file says of them, drawn as signed distances.

A number is a sum such as ``0.4 wide - 0.02 p0 + 0.1`` of the proportions ``p0, p1, p2`` in [-1, 1]
and of values that were named before. A shape is one of:

- ``[ellipse, [x, y], [rx, ry]]``: a function of ``signed_distances`` and its arguments; a strip is
  a ``box`` with the half size 9, what is above or below a height a ``half_plane``;
- ``[union, SHAPE, SHAPE]``, ``[both, ...]``, ``[minus, SHAPE, HOLE, ...]``;
- ``[grown, 0.05, SHAPE]``: wider by that much on every side;
- ``[mirrored, SHAPE]``: on the right and the left; ``[moved, [x, y], SHAPE]``;
  ``[sheared, k, SHAPE]``: ``u + k v`` in place of ``u``; ``[lying, y, SHAPE]``: its up is right;
- ``[each, NAME, [value, ...], SHAPE]``: the union over these values of a name;
- the name of a shape that was described before.

Both may be a mapping from the states of a thing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ood_lab.builtin.vessels.drawings import signed_distances
from ood_lab.builtin.vessels.drawings.signed_distances import Array, Proportions, both, minus, union
from ood_lab.common.arguments import Settings

_COMBINED: Mapping[str, Callable[..., Array]] = {"union": union, "both": both, "minus": minus}
#: How coordinates change: u, v and the numbers of a description → u, v.
_PLACED: Mapping[str, Callable[..., tuple[Array, Array]]] = {
    "mirrored": lambda u, v: (np.abs(u), v),
    "moved": lambda u, v, by: (u - by[0], v - by[1]),
    "sheared": lambda u, v, k: (u + k * v, v),
    "lying": lambda u, v, y: (v - y, u),
}


class Frame(NamedTuple):
    """Where a shape is drawn.

    Attributes:
        u: position to the right, ``[H, W]``.
        v: position upwards, ``[H, W]``.
        state: of the thing; empty without states.
        values: numbers by name.
        shapes: distances by name.
    """

    u: Array
    v: Array
    state: str
    values: dict[str, Any]
    shapes: dict[str, Array]


Number = Callable[[Frame], Any]
Shape = Callable[[Frame], Array]


class Description:
    """What the entry of a thing says: ``values`` and ``shapes`` by name, in order."""

    def __init__(self, entry: Settings) -> None:
        self._values = {name: number_of(node) for name, node in entry.get("values", {}).items()}
        self._shapes = {name: shape_of(node) for name, node in entry.get("shapes", {}).items()}

    def frame(
        self,
        u: Array,
        v: Array,
        proportions: Proportions,
        state: str = "",
        known: Mapping[str, Array] | None = None,
    ) -> Frame:
        """The frame for local coordinates, with the values and shapes of the description.

        Args:
            u: position to the right, ``[H, W]``.
            v: position upwards, ``[H, W]``.
            proportions: ``p0, p1, p2``.
            state: of the thing.
            known: shapes that were drawn before.
        """
        values = dict(zip(("p0", "p1", "p2"), proportions, strict=True))
        frame = Frame(u, v, state, values, dict(known or {}))
        for name, number in self._values.items():
            frame.values[name] = number(frame)
        for name, shape in self._shapes.items():
            frame.shapes[name] = shape(frame)
        return frame


def number_of(node: Any) -> Number:
    """A number, or a sequence of numbers, as a function of the frame."""
    if isinstance(node, Mapping):
        return _by_state(node, number_of)
    if isinstance(node, Sequence) and not isinstance(node, str):
        parts = [number_of(part) for part in node]
        return lambda frame: tuple(part(frame) for part in parts)
    if not isinstance(node, str):
        return lambda frame: float(node)
    terms = [_term(term) for term in re.findall(r"[+-]?[^+-]+", node.replace(" ", ""))]
    return lambda frame: sum(k * frame.values[name] if name else k for k, name in terms)


def _by_state(node: Settings, of: Callable[[Any], Number]) -> Number:
    functions = {state: of(inner) for state, inner in node.items()}
    return lambda frame: functions[frame.state](frame)


def _term(term: str) -> tuple[float, str]:
    """Factor and name of a part of a sum."""
    factor, name = re.findall(r"^([+-]?[\d.]*)(.*)$", term)[0]
    return float(f"{factor}1" if factor in ("", "+", "-") else factor), name


def shape_of(node: Any) -> Shape:
    """A shape as a function of the frame."""
    if isinstance(node, str):
        return lambda frame: frame.shapes[node]
    if isinstance(node, Mapping):
        return _by_state(node, shape_of)
    kind, *arguments = node
    if combine := _COMBINED.get(kind):
        parts = [shape_of(argument) for argument in arguments]
        return lambda frame: combine(*(part(frame) for part in parts))
    if kind == "each":
        name, values, of_one = arguments[0], number_of(arguments[1]), shape_of(arguments[2])
        return lambda frame: union(
            *(of_one(frame._replace(values=frame.values | {name: x})) for x in values(frame))
        )
    if kind == "grown":
        by, inner = number_of(arguments[0]), shape_of(arguments[1])
        return lambda frame: inner(frame) - by(frame)
    if place := _PLACED.get(kind):
        numbers, placed = number_of(arguments[:-1]), shape_of(arguments[-1])

        def drawn(frame: Frame) -> Array:
            u, v = place(frame.u, frame.v, *numbers(frame))
            return placed(frame._replace(u=u, v=v))

        return drawn
    draw, numbers = vars(signed_distances)[kind], number_of(arguments)
    return lambda frame: draw(frame.u, frame.v, *numbers(frame))
