"""Settings of the site: ``sphinx-build -W --keep-going docs docs/_build``."""

import sys
import warnings
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "tools"))

import sphinx.ext.autosummary  # noqa: E402

import esnlm  # noqa: E402

project = "esnlm"
author = "The esnlm developers"
copyright = author
version = release = esnlm.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "myst_parser",
    "sphinx_gallery.gen_gallery",
    "mathml",
    "site_pages",
]
exclude_patterns = ["_build", "conda", "paper", "tools", "gallery/*.ipynb", "gallery/*.py"]
templates_path = ["_templates"]
# Names in single backquotes are links where the site has a page of them, and code elsewhere.
default_role = "py:obj"
nitpicky = False

myst_enable_extensions = ["deflist", "dollarmath"]
myst_heading_anchors = 3

autosummary_generate = True
# A first line does not end at these.
sphinx.ext.autosummary.WELL_KNOWN_ABBREVIATIONS += ("eq.",)
autodoc_member_order = "bysource"
autodoc_typehints = "none"
numpydoc_show_class_members = False
numpydoc_attributes_as_param_list = True

sphinx_gallery_conf = {
    "examples_dirs": str(HERE.parent / "examples"),
    "gallery_dirs": "gallery",
    "filename_pattern": r"plot_",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "write_computation_times": False,
    "within_subsection_order": "site_pages.gallery_order",
    "show_signature": False,
}
# An example that warns does not build.
warnings.filterwarnings("error", module="esnlm")

html_theme = "pydata_sphinx_theme"
html_title = "esnlm"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_theme_options = {
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "header_links_before_dropdown": 6,
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
}
html_sidebars = {"glossary": [], "how_it_works": [], "index": []}
