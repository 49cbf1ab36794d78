"""Keys and passwords among settings: they are rejected before any of them is written down.

Scanners such as detect-secrets read files; this reads settings, before a file has them.
"""

from __future__ import annotations

import os
import re
from urllib.parse import urlsplit

from ood_lab.common.errors import UserError

#: Keys of well-known services, wherever they stand in a value.
_KEY = re.compile(
    r"(?<![A-Za-z0-9])(?:sk-(?=[A-Za-z_-]*\d)[A-Za-z0-9_-]{20,}|(?:hf|gsk|ghp|gho)_[A-Za-z0-9]{30,}"
    r"|xai-[A-Za-z0-9]{30,}|nvapi-[A-Za-z0-9_-]{30,}|AIza[A-Za-z0-9_-]{30,})"
)
#: Names of settings whose value is a secret, whatever it looks like.
_NAME = re.compile(r"(?:.*[_-])?(?:api[_-]?key|token|secret|password|authorization)", re.IGNORECASE)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def check_secret(key: str, value: object) -> None:
    """Raises a UserError, which does not repeat it, where a setting holds a key or a password.

    Args:
        key: dotted name of the setting.
        value: of it.
    """
    if reason := _reason(key, value):
        raise UserError(f"{key} {reason}")


def _reason(key: str, value: object) -> str | None:
    if not isinstance(value, str) or not value:
        return None
    name = key.rpartition(".")[2]
    if name == "api_key_env":
        if _looks_like_a_key(value):
            return (
                "holds no name of an environment variable that is set, perhaps the key itself, "
                "which would be written into files: put the key into a variable (export NAME=...), "
                f"and give its name, {key}=NAME"
            )
        return None
    if name == "base_url" and _has_more_than_an_address(value):
        return (
            "holds a name, a password or a query, which would be written into files: give the "
            "bare address, and the key in the environment variable that api_key_env names"
        )
    if _KEY.search(value) or _NAME.fullmatch(name):
        return (
            "holds what looks like a key or a password, which would be written into files: remove "
            "it; a key is read from the environment variable that api_key_env names"
        )
    return None


def _has_more_than_an_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:  # said by whoever opens it
        return "@" in url
    return bool(parts.username or parts.password or parts.query or parts.fragment)


def _looks_like_a_key(name: str) -> bool:
    """No name of a variable; or none that is set, and not written as ``MY_KEY_2``."""
    if not _VARIABLE.fullmatch(name) or _KEY.search(name):
        return True
    usual = name.isupper() and ("_" in name or name.isalpha())
    return name not in os.environ and not usual
