"""Columns that say which images belong together."""

#: In a table of images: the group, a number that is the same in all sets.
GROUP = "group"
#: In a table of images or scores: the group, or the photograph that an image is made of, by name.
MADE_OF = "made_of"
