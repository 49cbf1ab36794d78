"""The version; only this file has it."""

__version__ = "0.1.0"
