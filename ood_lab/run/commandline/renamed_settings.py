"""Former names of settings and tasks, each with its present one."""

from __future__ import annotations

from ood_lab.common.errors import UserError

#: ``key=choice`` or the beginning of a key, as it was -> as it is.
RENAMED = {
    "task=validate": "task=preflight",
    "task=how_far": "task=shift_report",
    "task=measure": "task=shift_scores",
    "task=divide": "task=shift_levels",
    "graded=classes": "synthetic_ood=held_out_classes",
    "graded": "synthetic_ood",
    "shift": "report_by",
    "experiment=how_far": "experiment=shift_report",
}
#: Keys whose values have changed too, or that a user's own YAML file may hold.
RENAMED_KEYS = {
    "metrics.protocol": "metrics.fpr95_positive=ood (before: openood) or id (before: hendrycks)",
    "metrics.draws": "metrics.n_bootstrap",
}


def check_present_name(override: str) -> None:
    """Raises :class:`UserError` for a former name; the message has the present one."""
    for old, new in RENAMED.items():
        rest = override.lstrip("+~").removeprefix(old)
        if rest != override.lstrip("+~") and (not rest or rest[0] in "=.,"):
            raise UserError(f"{old} is now {new}: write {new}{rest}")
