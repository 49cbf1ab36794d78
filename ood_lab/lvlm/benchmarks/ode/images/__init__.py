"""ODE's images: how they are made, filtered and annotated."""
