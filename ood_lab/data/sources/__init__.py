"""Where images come from: folders, tables, lists, tar files, datasets of other packages."""
