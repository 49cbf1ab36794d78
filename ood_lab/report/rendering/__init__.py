"""Tables and pages, on the terminal, as HTML, LaTeX and Markdown."""
