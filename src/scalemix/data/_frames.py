"""Frames of any library as columns of numbers, with errors that name the column."""

from typing import Any

import narwhals as nw


def refuse_text_columns(x: Any) -> None:
    """Say which columns of a pandas, polars or pyarrow frame are not numbers."""
    frame = nw.from_native(x, eager_only=True, pass_through=True)
    if not isinstance(frame, nw.DataFrame):
        return
    bad = [
        f"{name!r} ({kind})"
        for name, kind in frame.schema.items()
        if not (kind.is_numeric() or kind == nw.Boolean or kind == nw.Object)
    ]
    if bad:
        raise ValueError(
            f"X has columns that are not numbers: {', '.join(bad)}; expected numbers only: encode "
            "them first (for example with sklearn.preprocessing.OneHotEncoder), or drop them"
        )
