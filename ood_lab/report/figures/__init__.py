"""Figures: six kinds of drawing, their look and their layout, and files of both formats."""
