"""What is built in: rendered vessels and scenes.

Nothing else in the package imports it: configurations name it (``data=vessels``,
``annotations=scenes``, ``generator=renderer``).
"""
