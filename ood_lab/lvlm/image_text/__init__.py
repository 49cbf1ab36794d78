"""Image-text models: how well a text fits an image, for the division of OODBench."""
