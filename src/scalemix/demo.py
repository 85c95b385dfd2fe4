"""The demonstration: data that ship with scikit-learn, the default estimators, one page.

One fixed split of each set; nothing is tuned, and no result is left out.
"""

import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn import datasets
from sklearn.model_selection import train_test_split

from scalemix import metrics, plots, report
from scalemix.estimators import DeepBayesClassifier, DeepBayesRegressor
from scalemix.report import Picture, Section, Table

__all__ = ["COLUMNS", "COVERAGES", "PAGE", "TASKS", "Row", "run", "set_coverage"]

Floats = NDArray[np.float64]
Options = Mapping[str, Any]

PAGE = "report.html"
COVERAGES = (0.5, 0.8, 0.95)
"""Of the table."""
CURVE = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
"""Of the figures; holds COVERAGES."""
SAMPLES = 999
"""Predictive samples a row behind the histogram of the probability integral transform."""
DIGITS = 250
"""Training rows of the digits; all others are held out."""
TUMOURS = 256
"""The same for breast cancer."""
COLUMNS = (
    "task", "training rows", "test rows", "RMSE", "accuracy", "NLL",
    *(f"coverage of {100 * share:g} %" for share in COVERAGES), "seconds",
)  # fmt: skip


class Row(NamedTuple):
    """One line of the table. All scores are of the test rows."""

    task: str
    training_rows: int
    test_rows: int
    rmse: float | None
    """In the units of the target; `None` for classes."""
    accuracy: float | None
    nll: float
    """Mean negative log predictive density (or probability), in nats."""
    coverage: tuple[float, ...]
    """Of central intervals, or of prediction sets (`set_coverage`), at COVERAGES."""
    seconds: float
    """Of `fit` and all predictions, compiling included."""

    @property
    def cells(self) -> list[str]:
        """As text, in the order of COLUMNS; a dash where a score has no meaning."""
        numbers = [self.rmse, self.accuracy, self.nll, *self.coverage]
        shown = ["-" if number is None else f"{number:.3f}" for number in numbers]
        counts = [str(self.training_rows), str(self.test_rows)]
        return [self.task, *counts, *shown, f"{self.seconds:.1f}"]


class Data(NamedTuple):
    """A set, split once and for all."""

    task: str
    title: str
    about: str
    label: str
    """The target with its unit, or the event whose probability is drawn."""
    x_train: Floats
    x_test: Floats
    y_train: NDArray
    y_test: NDArray


class Outcome(NamedTuple):
    """What a task adds to the page."""

    row: Row
    section: Section
    diagnostics: dict[str, Any]
    warnings: list[str]


def run(
    out: Path, seed: int, say: Callable[[str], None], options: Options | None = None
) -> list[Row]:
    """Fit every task and write the page.

    Parameters
    ----------
    out
        An existing folder; the page is `out / PAGE`.
    seed
        `random_state` of the estimators. Same seed, same machine: the same numbers.
    say
        Told what happens now.
    options
        Parameters of the estimators that shall not have their defaults.

    Returns
    -------
    A row for each task.
    """
    outcomes = []
    for number, (load, examine) in enumerate(TASKS, start=1):
        data = load()
        say(f"{number} of {len(TASKS)}: {data.task}, fitting {len(data.x_train)} rows")
        outcomes.append(examine(data, seed, options or {}))
    say(f"writing {out / PAGE}")
    _write(out / PAGE, seed, outcomes)
    return [outcome.row for outcome in outcomes]


def set_coverage(y_index: ArrayLike, probabilities: ArrayLike, level: float) -> float:
    r"""Coverage of prediction sets that should hold the label with probability `level`.

    A set takes labels from the most probable one downwards; the label that would carry it past
    `level` enters with the probability that makes the sum exact. Averaged over that last draw, a
    row with label y counts :math:`\min(1, \max(0, (\text{level} - S_y) / p_y))`, where :math:`S_y`
    is the summed probability of all labels more probable than y: no random number is used, and the
    expectation is `level`, exactly, if the probabilities are right. (Whole sets would hold too many
    by construction: wherever one label is nearly certain, its set at 50 % is right nearly always.)

    Parameters
    ----------
    y_index : array of int, shape (n,)
        Observed class, as a column of `probabilities`.
    probabilities : array of shape (n, K)
    level
        Between 0 and 1.

    Returns
    -------
    float
        From 0 to 1.
    """
    index, probabilities = np.asarray(y_index), np.asarray(probabilities, float)
    own = probabilities[np.arange(len(index)), index][:, None]
    before = np.sum(np.where(probabilities > own, probabilities, 0.0), axis=1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):  # a label of probability 0 is never held
        held = np.where(own > 0.0, np.clip((level - before) / own, 0.0, 1.0), 0.0)
    return float(np.mean(held))


# The data.


def diabetes() -> Data:
    """Regression."""
    x, y = datasets.load_diabetes(return_X_y=True)
    about = (
        "Ten measurements of a patient (age, sex, body mass index, blood pressure, six blood "
        "serum values) and a score of how far the disease had come a year later."
    )
    title = "Regression: diabetes progression"
    parts = train_test_split(x, y, test_size=0.25, random_state=0)
    return Data("diabetes", title, about, "progression (score)", *parts)


def breast_cancer() -> Data:
    """Two classes."""
    x, y = datasets.load_breast_cancer(return_X_y=True)
    about = (
        "Thirty measurements of cell nuclei in an image of a breast tumour; benign or malignant."
    )
    title = "Two classes: breast cancer"
    parts = train_test_split(x, y, train_size=TUMOURS, random_state=0, stratify=y)
    return Data("breast cancer", title, about, "benign", *parts)


def digits() -> Data:
    """Many classes."""
    x, y = datasets.load_digits(return_X_y=True)
    about = (
        f"Handwritten digits of 8 x 8 grey values. Only {DIGITS} are learned from, so that doubt "
        "is left and many rows remain to check it on."
    )
    title = "Ten classes: handwritten digits"
    parts = train_test_split(x, y, train_size=DIGITS, random_state=0, stratify=y)
    return Data("digits", title, about, "the most probable digit is right", *parts)


# One task.


def regression(data: Data, seed: int, options: Options) -> Outcome:
    """Fit and examine a regression."""
    start = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        model = DeepBayesRegressor(random_state=seed, **options).fit(data.x_train, data.y_train)
    x, y = data.x_test, data.y_test
    prediction = np.asarray(model.predict(x))
    intervals = model.predict_interval(x, list(CURVE))
    nll = metrics.negative_log_likelihood(model.log_predictive_density(x, y))
    samples = model.sample_y(x, SAMPLES, random_state=seed)
    seconds = time.perf_counter() - start
    coverage = np.array([metrics.coverage(y, intervals[:, :, k]) for k in range(len(CURVE))])
    rmse = metrics.root_mean_squared_error(y, prediction)
    row = Row(data.task, len(data.x_train), len(y), rmse, None, nll, _chosen(coverage), seconds)

    place, spread = np.mean(data.y_train), np.std(data.y_train)
    constant = np.log(spread) + 0.5 * np.log(2 * np.pi) + np.mean((y - place) ** 2) / spread**2 / 2
    scale = f"RMSE {np.sqrt(np.mean((y - place) ** 2)):.1f} and NLL {constant:.2f}"
    pit = metrics.probability_integral_transform(y, samples, np.random.default_rng(seed))
    pictures = [
        _picture_of_intervals(y, prediction, intervals, data.label),
        _picture_of_coverage(coverage, len(y), "intervals"),
        _picture_of_pit(pit),
        _picture_of_traces(model, model.sample_f(x[:1])[0], f"{data.label}, first test row"),
    ]
    section = Section(data.title, [data.about, _yardstick(row, scale)], [], pictures)
    return Outcome(row, section, model.diagnostics_, [str(each.message) for each in caught])


def classification(data: Data, seed: int, options: Options) -> Outcome:
    """Fit and examine classes."""
    start = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        model = DeepBayesClassifier(random_state=seed, **options).fit(data.x_train, data.y_train)
    x, y = data.x_test, data.y_test
    probabilities = model.predict_proba(x)
    nll = metrics.negative_log_likelihood(model.log_predictive_density(x, y))
    seconds = time.perf_counter() - start
    index = np.searchsorted(model.classes_, y)
    right = np.argmax(probabilities, axis=1) == index
    coverage = np.array([set_coverage(index, probabilities, level) for level in CURVE])
    accuracy = metrics.accuracy(index, np.argmax(probabilities, axis=1))
    row = Row(data.task, len(data.x_train), len(y), None, accuracy, nll, _chosen(coverage), seconds)

    shares = np.bincount(np.searchsorted(model.classes_, data.y_train)) / len(data.y_train)
    scale = (
        f"accuracy {np.mean(index == np.argmax(shares)):.3f} and "
        f"NLL {metrics.log_loss(index, np.tile(shares, (len(y), 1))):.2f}"
    )
    two = len(model.classes_) == 2
    happened, stated = (
        (index == 1, probabilities[:, 1]) if two else (right, probabilities.max(axis=1))
    )
    doubtful = int(np.argmin(probabilities.max(axis=1)))
    pictures = [
        _picture_of_reliability(happened, stated, data.label),
        _picture_of_coverage(coverage, len(y), "prediction sets"),
        _picture_of_traces(
            model,
            _log_odds(model.sample_f(x[doubtful : doubtful + 1])[0], probabilities[doubtful]),
            "log-odds, most doubtful test row",
        ),
    ]
    section = Section(data.title, [data.about, _yardstick(row, scale)], [], pictures)
    return Outcome(row, section, model.diagnostics_, [str(each.message) for each in caught])


def _chosen(coverage: Floats) -> tuple[float, ...]:
    return tuple(float(coverage[CURVE.index(level)]) for level in COVERAGES)


def _log_odds(eta: Floats, probabilities: Floats) -> Floats:
    """Of the second class (one predictor), or of the most probable one (several), in each draw."""
    if eta.ndim == 1:
        return eta
    leader = int(np.argmax(probabilities))
    return eta[leader] - np.logaddexp.reduce(np.delete(eta, leader, axis=0), axis=0)


# The words and figures of the page.


def _yardstick(row: Row, constant: str) -> str:
    """What the scores can be held against."""
    mine = f"RMSE {row.rmse:.1f}" if row.rmse is not None else f"accuracy {row.accuracy:.3f}"
    return (
        f"Learned from {row.training_rows} rows, tested on {row.test_rows} others: {mine} and NLL "
        f"{row.nll:.2f}. A forecast that ignores the inputs has {constant}."
    )


def _verdict(coverage: Floats, n: int, things: str) -> str:
    """One clause: at which levels coverage leaves the band of chance, and what that means."""
    low, high = plots.chance_band(np.array(CURVE), n)
    findings = [
        f"{word} than chance allows at {_levels(which)}, where these {things} are too {size}"
        for which, word, size in (
            (coverage < low, "less often", "narrow"),
            (coverage > high, "more often", "wide"),
        )
        if np.any(which)
    ]
    return " and ".join(findings) or f"nowhere apart by more than chance allows for {n} rows"


def _levels(which: NDArray[np.bool_]) -> str:
    return ", ".join(f"{100 * level:g}" for level in np.array(CURVE)[which]) + " %"


def _picture_of_intervals(y: Floats, prediction: Floats, intervals: Floats, label: str) -> Picture:
    figure, axes = plots.new_figure()
    chosen = intervals[:, :, [CURVE.index(level) for level in COVERAGES]]
    plots.predicted_intervals(axes, y, prediction, chosen, COVERAGES, label)
    outside = round(len(y) * (1.0 - metrics.coverage(y, chosen[:, :, -1])))
    caption = (
        f"Predicted intervals and what was observed: {outside} of {len(y)} test rows lie outside "
        f"their 95 % interval, where {0.05 * len(y):.1f} are expected."
    )
    return Picture(
        figure,
        caption,
        f"Vertical bars of predicted intervals for {len(y)} test rows, sorted by their prediction, "
        "with the observed values as dots and those outside the widest interval as crosses.",
    )


def _picture_of_coverage(coverage: Floats, n: int, things: str) -> Picture:
    figure, axes = plots.new_figure()
    plots.interval_calibration(axes, CURVE, coverage, n)
    caption = (
        f"How often {things} hold the truth, against how often they should: "
        f"{_verdict(coverage, n, things)}."
    )
    pairs = ", ".join(
        f"{100 * a:g} %: {100 * b:.1f} %" for a, b in zip(CURVE, coverage, strict=True)
    )
    return Picture(figure, caption, f"Observed against nominal coverage. {pairs}.")


def _picture_of_pit(pit: Floats) -> Picture:
    figure, axes = plots.new_figure()
    plots.pit_histogram(axes, pit)
    shares = np.histogram(pit, bins=10, range=(0, 1))[0] / len(pit)
    low, high = plots.chance_band(0.1, len(pit))
    outside = int(np.sum((shares < low) | (shares > high)))
    caption = (
        "Where observations fall in their predictive distributions, flat if those are right, a U if "
        f"they are too narrow: {outside} of 10 bars leave the band of chance, where 0.5 are expected."
    )
    text = "Histogram of the probability integral transform; shares of its ten bars: "
    return Picture(figure, caption, text + ", ".join(f"{share:.3f}" for share in shares) + ".")


def _picture_of_reliability(happened: NDArray, stated: Floats, label: str) -> Picture:
    figure, axes = plots.new_figure()
    plots.reliability(axes, happened, stated, label=label)
    error = metrics.expected_calibration_error(happened, stated, 10)
    caption = (
        f"Predicted probability against what happened, in tenths of the {len(stated)} test rows: on "
        f"average {100 * error:.1f} percentage points apart, and points within the grey bars are no "
        "farther from the line than chance allows."
    )
    curve = metrics.calibration_curve(happened, stated, 10)
    points = ", ".join(f"{a:.3f}: {b:.3f}" for a, b in zip(curve[0], curve[1], strict=True))
    return Picture(figure, caption, f"Reliability diagram, predicted: observed. {points}.")


def _picture_of_traces(model: Any, draws: Floats, label: str) -> Picture:
    chains = draws.reshape(model.diagnostics_["chains"], -1)
    figure, axes = plots.new_figure()
    plots.traces(axes, chains, label)
    caption = (
        f"Draws of one prediction, a line for each of {len(chains)} chains: a line should wander "
        "about a level and not drift, while levels of their own are modes of the network, over "
        "which predictions are averaged."
    )
    means = ", ".join(f"{mean:.2f}" for mean in chains.mean(axis=1))
    return Picture(figure, caption, f"Traces of {len(chains)} chains; their means are {means}.")


def _write(path: Path, seed: int, outcomes: list[Outcome]) -> None:
    summary = Section(
        "",
        [
            "Three sets of data that ship with scikit-learn, the estimators of scalemix at their "
            f"defaults (random_state={seed}), a fixed split, nothing tuned. All scores are of rows "
            "that were held out.",
        ],
        [Table("Scores on held-out rows", COLUMNS, [outcome.row.cells for outcome in outcomes])],
    )
    notes = [
        "RMSE is in the units of the target; NLL is the mean negative log predictive density (or "
        "probability) in nats, smaller is better. Coverage is the share of rows inside their "
        "central predictive interval. Classes have prediction sets instead: labels from the most "
        "probable one downwards until their probabilities reach the level, the last one entering "
        "with the probability that makes it exact. Seconds are those of fitting and predicting, "
        "compiling included.",
    ]
    sections = [summary, Section("How to read the table", notes)]
    sections += [outcome.section for outcome in outcomes]
    report.write(
        path, "scalemix: a demonstration", *sections, _exactness(outcomes), _trust(outcomes)
    )


def _exactness(outcomes: list[Outcome]) -> Section:
    bodies = sorted({outcome.diagnostics["body"] for outcome in outcomes})
    rows = [
        ["Top layer, its scale, noise", "exact draws (Gibbs sampling), given the body"],
        ["Body of the network", "; ".join(bodies)],
        ["Modes", "approximate: a few independent starts stand for all modes of the posterior"],
        ["Predictions", "the average over all kept draws and chains; exact for these draws"],
        ["Intervals", "quantiles of that average, inverted to the precision of float32"],
        ["Draws", "finitely many, so every number has a Monte Carlo error (below)"],
    ]
    return Section(
        "What is exact, what is approximate",
        tables=[Table("How each part is computed", ["part", "how"], rows, numbers=False)],
    )


def _trust(outcomes: list[Outcome]) -> Section:
    def worst(outcome: Outcome, name: str, digits: int) -> str:
        values = outcome.diagnostics.get(name, {}).values()
        pick = min if name.startswith("ess") else max
        return f"{pick(values):.{digits}f}" if values else "-"

    columns = ["task", "chains", "draws", "R-hat within chains", "R-hat between chains",
               "effective draws", "failed sweeps"]  # fmt: skip
    rows = [
        [
            outcome.row.task,
            str(outcome.diagnostics["chains"]),
            str(outcome.diagnostics["draws"]),
            worst(outcome, "r_hat_within", 2),
            worst(outcome, "r_hat", 2),
            worst(outcome, "ess_bulk", 0),
            str(outcome.diagnostics["failed_sweeps"]),
        ]
        for outcome in outcomes
    ]
    said = [f"{outcome.row.task}: {text}." for outcome in outcomes for text in outcome.warnings]
    paragraphs = [
        "The worst of each over everything that was watched. R-hat within chains near 1 says that "
        "chains do not drift; between chains it is large where they sit in different modes, which "
        "is reported and is no fault of the sampler.",
        "Warnings: " + " ".join(said) if said else "No fit warned of anything.",
    ]
    return Section("What to distrust", paragraphs, [Table("Diagnostics", columns, rows)])


TASKS = ((diabetes, regression), (breast_cancer, classification), (digits, classification))
