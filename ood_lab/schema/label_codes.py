"""Labels of images that do not name one class."""

#: Label of an image of multi-label data, which has any number of classes.
SEVERAL = -2
#: Column of the classes of such an image, a JSON list of names; missing where they are not known.
LISTS = "label_list"
