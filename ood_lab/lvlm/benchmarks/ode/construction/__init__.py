"""From concepts to the compositions that images are to show."""
