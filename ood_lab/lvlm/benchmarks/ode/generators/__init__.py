"""Where the images come from: the builtin renderer, or any text-to-image pipeline."""
