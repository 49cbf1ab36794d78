"""Group-relative policy optimisation (arXiv 2402.03300), as ORIC's released code has it or plain.

With G replies to a prompt, rewards ``r`` and advantages ``A = (r - mean r) / max(std r, 1e-4)``
(standard deviation with G - 1), the loss of a group is

``mean over replies of [ -mean over tokens of ratio * A + beta * mean over tokens of KL ]``

with ``KL = e^d - d - 1``, ``d = log pi_ref - log pi`` (Schulman's k3: never negative, and without
bias where the tokens are drawn from pi). The ratio is

- ``policy``: ``pi / pi_old``; replies are used once, right after they were drawn, so that
  ``pi_old = pi``: its value is 1, its gradient that of ``log pi``, and clipping does nothing;
- ``reference`` (released code): ``pi / pi_ref``, at most 100, without clipping by epsilon.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

Ratio = Literal["policy", "reference"]
_MOST = 100.0
_LEAST_SPREAD = 1e-4


def advantages(rewards: Tensor) -> Tensor:
    """``(r - mean) / max(std, 1e-4)`` within a group, ``[G] -> [G]``; 0 for a group of one."""
    spread = rewards.std() if len(rewards) > 1 else rewards.new_zeros(())
    return (rewards - rewards.mean()) / spread.clamp_min(_LEAST_SPREAD)


def k3(log_pi: Tensor, log_ref: Tensor) -> Tensor:
    """``e^d - d - 1`` with ``d = log pi_ref - log pi``, of every token."""
    difference = log_ref - log_pi
    return difference.exp() - difference - 1


def grpo_loss(
    log_pi: Tensor, log_ref: Tensor, advantage: Tensor, mask: Tensor, beta: float, ratio: Ratio
) -> Tensor:
    """The loss of one group.

    Args:
        log_pi: log-probabilities of the tokens of G replies, ``[G, L]``, with gradients.
        log_ref: the same of the reference, ``[G, L]``.
        advantage: ``[G]``.
        mask: ``[G, L] bool``, tokens of the replies up to and with their end.
        beta: weight of the KL.
        ratio: see the module.
    """
    if ratio == "reference":
        factor = (log_pi - log_ref).exp().clamp_max(_MOST)
    else:
        factor = (log_pi - log_pi.detach()).exp()
    gain = _token_mean(factor, mask) * advantage
    return (-gain + beta * _token_mean(k3(log_pi, log_ref), mask)).mean()


def token_log_probs(logits: Tensor, tokens: Tensor) -> Tensor:
    """``log p`` of each token, ``[G, L, V], [G, L] -> [G, L]``, in float32."""
    every = torch.log_softmax(logits.float(), dim=-1)
    return every.gather(-1, tokens[..., None]).squeeze(-1)


def _token_mean(values: Tensor, mask: Tensor) -> Tensor:
    kept = mask.to(values.dtype)
    return (values * kept).sum(dim=1) / kept.sum(dim=1).clamp_min(1.0)
