"""One self-contained HTML page: text, tables and figures; no network, no script.

Figures are embedded as PNG: their size does not grow with the number of points, and the same
numbers give the same bytes.
"""

import os
import secrets
from base64 import b64encode
from collections.abc import Sequence
from importlib import resources
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

from jinja2 import Environment, StrictUndefined
from matplotlib.figure import Figure

__all__ = ["Picture", "Section", "Table", "page", "write"]

DOTS_PER_INCH = 200
"""Twice what a figure is shown at, for dense screens and for printing."""
SHOWN_PER_INCH = 100


class Picture(NamedTuple):
    """A figure with its words."""

    figure: Figure
    caption: str
    """One sentence: what it shows and what to conclude."""
    alternative: str
    """For those who cannot see it."""

    @property
    def source(self) -> str:
        """The figure as a data URI."""
        buffer = BytesIO()
        # Without the version of the software the bytes depend on the picture alone.
        self.figure.savefig(buffer, format="png", dpi=DOTS_PER_INCH, metadata={"Software": None})
        return "data:image/png;base64," + b64encode(buffer.getvalue()).decode("ascii")

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in the page's pixels, so that nothing moves while it loads."""
        width, height = self.figure.get_size_inches() * SHOWN_PER_INCH
        return round(width), round(height)


class Table(NamedTuple):
    """Rows of text; the first column names its row."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: bool = True
    """Whether all columns but the first hold numbers, which are set flush right."""


class Section(NamedTuple):
    """A heading and what stands below it, in this order."""

    title: str
    paragraphs: Sequence[str] = ()
    tables: Sequence[Table] = ()
    pictures: Sequence[Picture] = ()


def page(title: str, *sections: Section) -> str:
    """The page as text. Everything but the template is escaped: titles and cells are plain text."""
    template = resources.files(__package__).joinpath("page.html").read_text(encoding="utf-8")
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(template).render(title=title, sections=sections)


def write(path: str | os.PathLike[str], title: str, *sections: Section) -> None:
    """Write the page to one file, all or nothing.

    Parameters
    ----------
    path
        Of the HTML file, in an existing directory; an existing file is replaced whole.
    title
        Of the page.
    *sections
        From top to bottom. The first stands right below the title and may have an empty title.
    """
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
    try:
        temporary.write_text(page(title, *sections), encoding="utf-8")
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
