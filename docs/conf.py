"""The documentation: every Markdown page of this folder, by Sphinx with MyST."""

project = "scalemix"
author = "The scalemix developers"
extensions = ["myst_parser", "sphinx.ext.mathjax"]
myst_enable_extensions = ["dollarmath", "amsmath", "deflist"]
myst_heading_anchors = 3  # links to headings, as on the code host
html_theme = "alabaster"
exclude_patterns = ["_build"]
