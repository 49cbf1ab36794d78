"""Questions whether an object is in an image: what is known of object and image, and what it does.

A table of them has ``row`` (of the image), ``object`` and ``label`` (yes or no).
"""
