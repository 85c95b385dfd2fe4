"""Figures from arrays: every function draws on the Axes it is given and knows no estimator.

No pyplot and no settings of matplotlib's: figures live as long as their caller keeps them. Colours
are those of Okabe and Ito [1], which colour-blind readers tell apart; what matters is also told by
shape or by place. A grey or pale band is what chance alone does: 95 % of the results of a perfectly
calibrated forecast lie in it, point by point.

References
----------
.. [1] M. Okabe, K. Ito (2008), Color universal design: how to make figures and presentations that
   are friendly to colorblind people, University of Tokyo.
.. [2] J. Broecker, L. A. Smith (2007), Increasing the reliability of reliability diagrams, Weather
   and Forecasting 22(3), 651-661.
"""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from scalemix import metrics

__all__ = [
    "chance_band",
    "interval_calibration",
    "new_figure",
    "pit_histogram",
    "predicted_intervals",
    "predictive_band",
    "reliability",
    "traces",
]

Floats = NDArray[np.float64]

BLUE, SKY, ORANGE, GREEN = "#0072B2", "#56B4E9", "#D55E00", "#009E73"
INK, GREY, PALE = "#222222", "#767676", "#E6E6E6"
CHAINS = (BLUE, ORANGE, GREEN, "#CC79A7", "#E69F00", SKY, INK, GREY)
TEXT = 9.0
CHANCE = 0.95


def new_figure(width: float = 4.8, height: float = 3.2) -> tuple[Figure, Axes]:
    """A figure of this size in inches that draws by Agg and is unknown to pyplot, and its Axes."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.set_axisbelow(True)
    axes.grid(color=PALE, linewidth=0.8)
    axes.tick_params(length=0, labelsize=TEXT, labelcolor=INK)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(GREY)
    return figure, axes


def chance_band(probability: ArrayLike, n: ArrayLike) -> Floats:
    """The middle 95 % of the binomial share of n rows in which an event of that probability happens.

    Parameters
    ----------
    probability, n
        Of one shape (...), or one number.

    Returns
    -------
    array of shape (2, ...)
        Lower and upper ends; exact for independent rows.
    """
    tail = (1.0 - CHANCE) / 2.0
    ends = [stats.binom.ppf(level, n, probability) for level in (tail, 1.0 - tail)]
    return np.asarray(ends) / np.asarray(n, float)


def predicted_intervals(
    axes: Axes,
    y: ArrayLike,
    prediction: ArrayLike,
    intervals: ArrayLike,
    coverages: Sequence[float],
    label: str = "target",
) -> None:
    """Predicted intervals and observations, rows sorted by their prediction.

    Parameters
    ----------
    axes
    y, prediction : arrays of shape (n,)
        Observed; predicted mean or median.
    intervals : array of shape (n, 2, k)
        As `predict_interval` returns them for a list of coverages.
    coverages
        The k of them. Observations outside the widest interval are crosses.
    label
        Name of the target, with its unit.
    """
    order = np.argsort(np.asarray(prediction), kind="stable")
    y, prediction = np.asarray(y)[order], np.asarray(prediction)[order]
    ends = np.asarray(intervals)[order]
    place = np.arange(len(y))
    width = min(5.0, 300.0 / len(y))
    for index, share in _widest_first(coverages):
        axes.vlines(
            place,
            ends[:, 0, index],
            ends[:, 1, index],
            colors=BLUE,
            alpha=_alpha(share),
            linewidth=width,
            label=f"{100 * share:g} % interval",
        )
    axes.plot(place, prediction, "_", color=BLUE, markersize=width, label="prediction")
    widest = int(np.argmax(coverages))
    outside = (y < ends[:, 0, widest]) | (y > ends[:, 1, widest])
    axes.plot(place[~outside], y[~outside], ".", color=INK, markersize=4, label="observed")
    axes.plot(
        place[outside],
        y[outside],
        "x",
        color=ORANGE,
        markersize=5,
        markeredgewidth=1.5,
        label=f"observed, outside {100 * max(coverages):g} %",
    )
    _label(axes, "row, sorted by its prediction", label)
    axes.set_xlim(-1, len(y))
    axes.grid(visible=False, axis="x")
    _legend(axes, columns=3)


def interval_calibration(axes: Axes, nominal: ArrayLike, observed: ArrayLike, n: int) -> None:
    """Observed against nominal coverage, with what chance allows for n rows.

    Parameters
    ----------
    axes
    nominal, observed : arrays of shape (k,)
        Coverage asked for, and share of the rows that were inside.
    n
        How many rows.
    """
    nominal, observed = np.asarray(nominal, float), np.asarray(observed, float)
    fine = np.linspace(0.0, 1.0, 201)
    axes.fill_between(fine, *chance_band(fine, n), color=PALE, linewidth=0, label="chance (95 %)")
    axes.plot([0, 1], [0, 1], color=GREY, linewidth=1, label="as promised")
    axes.plot(nominal, observed, "o-", color=BLUE, markersize=5, linewidth=1.5, label="this model")
    _label(axes, "coverage asked for", f"share of {n} rows inside")
    _shares(axes, 0.0)
    _legend(axes, columns=1, place="upper left")


def pit_histogram(axes: Axes, transform: ArrayLike, bins: int = 10) -> None:
    """Histogram of probability integral transforms: flat if the forecast is calibrated.

    Parameters
    ----------
    axes
    transform : array of shape (n,)
        From 0 to 1, as `metrics.probability_integral_transform` returns it.
    bins
        Of equal width.
    """
    transform = np.asarray(transform, float)
    counts, edges = np.histogram(transform, bins=bins, range=(0.0, 1.0))
    low, high = chance_band(1.0 / bins, len(transform))
    axes.axhspan(float(low), float(high), color=PALE, linewidth=0, label="chance (95 %)")
    axes.bar(
        edges[:-1],
        counts / len(transform),
        width=1.0 / bins,
        align="edge",
        color=SKY,
        edgecolor="white",
        alpha=0.85,
        label="this model",
    )
    axes.axhline(1.0 / bins, color=GREY, linewidth=1, label="uniform")
    _label(axes, "predicted probability of a smaller value", f"share of {len(transform)} rows")
    axes.set_xlim(0, 1)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.grid(visible=False, axis="x")
    axes.margins(y=0.3)
    _legend(axes, columns=3)


def reliability(
    axes: Axes, correct: ArrayLike, confidence: ArrayLike, bins: int = 10, label: str = "event"
) -> None:
    """Reliability diagram in bins of equal mass, with consistency bars [2].

    Parameters
    ----------
    axes
    correct : array of bool, shape (n,)
        Whether the event happened.
    confidence : array of shape (n,)
        Its predicted probability.
    bins
        At most so many, by `metrics.calibration_curve`. The bars about the diagonal are binomial at
        each bin's mean probability: a little wide where probabilities differ within a bin.
    label
        What the event is.
    """
    curve = metrics.calibration_curve(correct, confidence, bins, "equal_mass")
    counts = np.round(curve.weight * np.size(confidence)).astype(int)
    low, high = chance_band(curve.confidence, counts)
    axes.vlines(curve.confidence, low, high, colors=PALE, linewidth=8, label="chance (95 %)")
    axes.plot([0, 1], [0, 1], color=GREY, linewidth=1, label="as promised")
    axes.plot(
        curve.confidence,
        curve.frequency,
        "o-",
        color=BLUE,
        markersize=5,
        linewidth=1.5,
        label="this model",
    )
    _label(axes, f"predicted probability: {label}", "share in which it was so")
    least = min(curve.confidence.min(), curve.frequency.min(), low.min())
    _shares(axes, np.floor(10 * least) / 10)
    _legend(axes, columns=1, place="upper left")


def traces(axes: Axes, draws: ArrayLike, label: str) -> None:
    """One line a chain.

    Parameters
    ----------
    axes
    draws : array of shape (chains, draws)
    label
        Name of the quantity, with its unit.
    """
    draws = np.asarray(draws)
    for index, chain in enumerate(draws):
        axes.plot(
            np.arange(1, len(chain) + 1),
            chain,
            color=CHAINS[index % len(CHAINS)],
            linewidth=1,
            alpha=0.8,
            label=f"chain {index + 1}",
        )
    _label(axes, "kept draw", label)
    axes.set_xlim(1, max(draws.shape[1], 2))


def predictive_band(
    axes: Axes,
    x: ArrayLike,
    prediction: ArrayLike,
    intervals: ArrayLike,
    coverages: Sequence[float],
    x_data: ArrayLike,
    y_data: ArrayLike,
) -> None:
    """Prediction and predictive intervals along one input, and the data.

    Parameters
    ----------
    axes
    x, prediction : arrays of shape (n,)
        Increasing inputs; predicted mean or median.
    intervals : array of shape (n, 2, k)
        As `predict_interval` returns them for a list of coverages.
    coverages
        The k of them.
    x_data, y_data : arrays of shape (m,)
        Observations.
    """
    x, ends = np.asarray(x, float), np.asarray(intervals, float)
    for index, share in _widest_first(coverages):
        axes.fill_between(
            x,
            ends[:, 0, index],
            ends[:, 1, index],
            color=BLUE,
            alpha=_alpha(share),
            linewidth=0,
            label=f"{100 * share:g} % interval",
        )
    axes.plot(x, np.asarray(prediction, float), color=BLUE, linewidth=1.8, label="mean")
    axes.plot(x_data, y_data, ".", color=INK, markersize=4, label="data")
    _label(axes, "x", "y")
    axes.set_xlim(x[0], x[-1])
    _legend(axes, columns=len(axes.get_legend_handles_labels()[0]))


def _widest_first(coverages: Sequence[float]) -> list[tuple[int, float]]:
    """Indices and shares, so that narrow intervals are drawn over wide ones."""
    return sorted(enumerate(coverages), key=lambda item: -item[1])


def _alpha(share: float) -> float:
    """The wider, the paler."""
    return 0.12 + 0.25 * (1.0 - share)


def _label(axes: Axes, x: str, y: str) -> None:
    axes.set_xlabel(x, fontsize=TEXT, color=INK)
    axes.set_ylabel(y, fontsize=TEXT, color=INK)


def _legend(axes: Axes, columns: int, place: str | None = None) -> None:
    """Inside at the given place, or above the data."""
    where = {"loc": place} if place else {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0)}
    axes.legend(
        frameon=False,
        fontsize=TEXT - 1,
        labelcolor=INK,
        ncols=columns,
        handlelength=1.4,
        columnspacing=1.2,
        borderaxespad=0.2,
        **where,
    )


def _shares(axes: Axes, least: float) -> None:
    """Both axes are shares from `least` to 1."""
    margin = 0.02 * (1.0 - least)
    axes.set_xlim(least - margin, 1.0 + margin)
    axes.set_ylim(least - margin, 1.0 + margin)
    decimals = 0 if least < 0.9 else 1
    axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=decimals))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=decimals))
