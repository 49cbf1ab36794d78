"""Questions about images: files, forms, images, and formats of other packages."""
