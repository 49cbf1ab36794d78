"""What is built in: rendered vessels and scenes, and how the shipped models were made of them.

Nothing else in the package imports it, but for the tasks that make those models: configurations
name it (``data=vessels``, ``annotations=scenes``, ``generator=renderer``, ``model=tiny_clip``).
"""
