# SPDX-License-Identifier: Apache-2.0
"""The site around the reference. scripts/docs builds it; docs/ is its source, this folder its configuration."""

import pathlib
import re

from docutils import nodes
from latex2mathml.converter import convert

TOP = pathlib.Path(__file__).resolve().parent.parent.parent

project = "aft"
copyright = "the authors of aft, Apache-2.0"
header = (TOP / "include/aft/core/version.hpp").read_text(encoding="utf-8")
version = release = ".".join(re.search(rf"AFT_VERSION_{part} +(\d+)", header).group(1)
                             for part in ("MAJOR", "MINOR", "PATCH"))

extensions = ["myst_parser", "sphinxcontrib.doxylink"]
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 4
exclude_patterns = ["site", "programs", "results", "pictures/README.md"]
highlight_language = "none"

# {cpp}`aft::full` names a page of the reference.
doxylink = {"cpp": (str(TOP / "build/docs/reference.tag"), "reference/")}

html_theme = "furo"
html_title = f"aft {release}"
html_static_path = ["style.css"]
html_css_files = ["style.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
html_math_renderer = "mathml"


def draw_formula(display):
    """Browsers draw MathML themselves; a script that draws would have to come from a network."""
    def visit(writer, node):
        formula = convert(node.astext(), display=display)
        writer.body.append(f'<div class="formula">{formula}</div>' if display == "block" else formula)
        raise nodes.SkipNode
    return visit


# Documents at the top of the tree, and the pages that include them.
INCLUDED = {"CONTRIBUTING.md": "/developing/contributing.md", "CHANGELOG.md": "/developing/changelog.md"}


def lead_inside(app, docname, source):
    for name, page in INCLUDED.items():
        source[0] = re.sub(rf"\]\((\.\./)+{re.escape(name)}", f"]({page}", source[0])


def setup(app):
    app.connect("source-read", lead_inside)
    app.add_html_math_renderer("mathml", inline_renderers=(draw_formula("inline"), None),
                               block_renderers=(draw_formula("block"), None))
    return {"parallel_read_safe": True}
