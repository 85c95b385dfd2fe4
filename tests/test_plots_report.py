"""Figures draw the right numbers, and the page stands alone: no network, no half-written file."""

import base64
import io
import math
import os
import struct
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import jinja2
import matplotlib
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from sklearn.linear_model import LinearRegression

from scalemix import demo, plots, report


def lines(axes: Axes) -> dict[str, np.ndarray]:
    """Points of the labelled lines, (n, 2)."""
    return {str(line.get_label()): np.asarray(line.get_xydata()) for line in axes.lines}


def collection(axes: Axes, label: str) -> list[np.ndarray]:
    """Paths of the collection with a label."""
    (found,) = [each for each in axes.collections if each.get_label() == label]
    return [np.asarray(path.vertices) for path in found.get_paths()]


def binomial_ends(n: int, probability: float) -> tuple[float, float]:
    """Shares at which the binomial distribution function first reaches .025 and .975."""
    ends, total = [], 0.0
    for k in range(n + 1):
        total += math.comb(n, k) * probability**k * (1.0 - probability) ** (n - k)
        while len(ends) < 2 and total >= (0.025, 0.975)[len(ends)]:
            ends.append(k / n)
    return ends[0], ends[1]


@pytest.mark.parametrize(("n", "probability"), [(37, 0.1), (100, 0.5), (111, 0.95), (20, 1.0)])
def test_band_of_chance_is_binomial(n: int, probability: float) -> None:
    np.testing.assert_array_equal(plots.chance_band(probability, n), binomial_ends(n, probability))


def test_intervals_are_sorted_and_misses_are_marked() -> None:
    y = np.array([5.5, -3.0, 0.5, 10.0])
    prediction = np.array([4.0, 0.0, 1.0, 3.0])  # order: rows 1, 2, 3, 0
    half = np.array([1.0, 2.0])
    intervals = prediction[:, None, None] + np.array([-1.0, 1.0])[:, None] * half
    _, axes = plots.new_figure()
    plots.predicted_intervals(axes, y, prediction, intervals, (0.5, 0.9), "length (m)")
    drawn = lines(axes)
    np.testing.assert_array_equal(drawn["prediction"], [[0, 0], [1, 1], [2, 3], [3, 4]])
    # Rows 1 (-3 in [-2, 2]) and 3 (10 in [1, 5]) miss the 90 % interval; row 0 (5.5) only the 50 % one.
    np.testing.assert_array_equal(drawn["observed"], [[1, 0.5], [3, 5.5]])
    np.testing.assert_array_equal(drawn["observed, outside 90 %"], [[0, -3], [2, 10]])
    np.testing.assert_array_equal(
        collection(axes, "90 % interval"),
        [[[0, -2], [0, 2]], [[1, -1], [1, 3]], [[2, 1], [2, 5]], [[3, 2], [3, 6]]],
    )
    np.testing.assert_array_equal(collection(axes, "50 % interval")[0], [[0, -1], [0, 1]])
    assert axes.get_ylabel() == "length (m)"


def test_calibration_of_intervals_is_drawn_as_given() -> None:
    _, axes = plots.new_figure()
    plots.interval_calibration(axes, [0.5, 0.9], [0.4, 0.95], 40)
    np.testing.assert_array_equal(lines(axes)["this model"], [[0.5, 0.4], [0.9, 0.95]])
    np.testing.assert_array_equal(lines(axes)["as promised"], [[0, 0], [1, 1]])
    (band,) = collection(axes, "chance (95 %)")
    at_half = band[np.isclose(band[:, 0], 0.5), 1]
    assert (at_half.min(), at_half.max()) == binomial_ends(40, 0.5)


def test_histogram_shows_shares(seed: int) -> None:
    transform = np.random.default_rng(seed).random(50)
    transform[:2] = 0.0, 1.0
    _, axes = plots.new_figure()
    plots.pit_histogram(axes, transform, bins=5)
    heights = [bar.get_height() for bar in axes.containers[0]]
    expected = np.bincount(np.minimum((transform * 5).astype(int), 4), minlength=5) / 50
    # Both are ratios of the same whole numbers.
    np.testing.assert_array_equal(heights, expected)
    np.testing.assert_array_equal(lines(axes)["uniform"][:, 1], [0.2, 0.2])
    (band,) = [patch for patch in axes.patches if patch.get_label() == "chance (95 %)"]
    assert (band.get_y(), band.get_y() + band.get_height()) == pytest.approx(binomial_ends(50, 0.2))


def test_reliability_by_sorting(seed: int) -> None:
    """Without ties, bins of equal mass are the sorted rows cut into equal parts."""
    generator = np.random.default_rng(seed)
    confidence = generator.permutation(np.linspace(0.1, 0.99, 60) ** 2)
    correct = generator.random(60) < confidence
    _, axes = plots.new_figure()
    plots.reliability(axes, correct, confidence, bins=6, label="rain")
    order = np.argsort(confidence)
    expected = [
        [confidence[part].mean(), correct[part].mean()] for part in np.array_split(order, 6)
    ]
    # Sums of ten numbers in another order: some units in the last place.
    np.testing.assert_allclose(lines(axes)["this model"], expected, rtol=1e-13)
    bars = collection(axes, "chance (95 %)")
    for bar, (centre, _) in zip(bars, expected, strict=True):
        assert tuple(bar[:, 1]) == binomial_ends(10, centre)
    assert "rain" in axes.get_xlabel()


def test_every_chain_has_its_line(seed: int) -> None:
    draws = np.random.default_rng(seed).normal(size=(11, 30))  # more chains than colours
    _, axes = plots.new_figure()
    plots.traces(axes, draws, "noise (m)")
    assert len(axes.lines) == 11
    for line, chain in zip(axes.lines, draws, strict=True):
        np.testing.assert_array_equal(line.get_xydata(), np.c_[np.arange(1, 31), chain])


def test_narrow_bands_lie_over_wide_ones() -> None:
    x = np.linspace(0.0, 1.0, 5)
    half = np.array([1.0, 3.0])
    intervals = x[:, None, None] + np.array([-1.0, 1.0])[:, None] * half
    _, axes = plots.new_figure()
    plots.predictive_band(axes, x, x, intervals, (0.5, 0.95), [0.2], [7.0])
    assert [each.get_label() for each in axes.collections] == ["95 % interval", "50 % interval"]
    for label, width in (("95 % interval", 3.0), ("50 % interval", 1.0)):
        (band,) = collection(axes, label)
        at_end = band[band[:, 0] == 1.0, 1]
        assert (at_end.min(), at_end.max()) == (1.0 - width, 1.0 + width)
    np.testing.assert_array_equal(lines(axes)["mean"], np.c_[x, x])
    np.testing.assert_array_equal(lines(axes)["data"], [[0.2, 7.0]])


def draw_all() -> list[tuple[Figure, Axes]]:
    """One figure of each kind."""
    generator = np.random.default_rng(0)
    y, grid = generator.normal(size=40), np.linspace(0, 1, 40)
    intervals = np.tile([[[-1.0, -2.0], [1.0, 2.0]]], (40, 1, 1))
    figures = [plots.new_figure() for _ in range(6)]
    axes = [each for _, each in figures]
    plots.predicted_intervals(axes[0], y, 0 * y, intervals, (0.5, 0.9))
    plots.interval_calibration(axes[1], [0.5, 0.9], [0.4, 0.95], 40)
    plots.pit_histogram(axes[2], grid)
    plots.reliability(axes[3], y > 0, grid)
    plots.traces(axes[4], y.reshape(4, 10), "quantity")
    plots.predictive_band(axes[5], grid, y, intervals, (0.5, 0.9), grid, y)
    return figures


def test_figures_are_labelled_and_leave_matplotlib_alone() -> None:
    before = dict(matplotlib.rcParams)
    for figure, axes in draw_all():
        assert axes.get_xlabel()
        assert axes.get_ylabel()
        assert report.Picture(figure, "caption", "alternative").source
    assert dict(matplotlib.rcParams) == before


def test_pyplot_is_never_imported() -> None:
    """Its figures are global state: they outlive their use and need a screen."""
    code = (
        "import sys, scalemix.plots, scalemix.report; assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# The page.


class Reader(HTMLParser):
    """Collects tags, their attributes and the text; refuses tags that are not closed in order."""

    EMPTY = ("meta", "link", "img", "br")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def assert_stands_alone(text: str) -> Reader:
    """Nothing on the page is fetched or run, and every picture has words."""
    reader = Reader(text)
    assert not {"script", "iframe", "object", "base"} & {tag for tag, _ in reader.tags}
    for _, attributes in reader.tags:
        assert not any(name.startswith("on") for name in attributes)
        for name in ("src", "href", "srcset", "action", "poster", "data"):
            assert (attributes.get(name) or "data:").startswith("data:")
    assert "url(" not in text
    assert "@import" not in text
    for image in reader.all("img"):
        assert image["alt"]
        assert image["width"]
        assert image["height"]
    assert reader.all("html") == [{"lang": "en"}]
    assert any(meta.get("name") == "viewport" for meta in reader.all("meta"))
    return reader


def example() -> tuple[report.Section, ...]:
    pictures = [report.Picture(figure, "What it says.", "A curve.") for figure, _ in draw_all()]
    table = report.Table("Scores", ("task", "RMSE"), [("a <b> & c", "1.5")])
    return report.Section("", ["First words."], [table]), report.Section("More", pictures=pictures)


def test_page_stands_alone() -> None:
    text = report.page("Title & <more>", *example())
    reader = assert_stands_alone(text)
    assert "Title & <more>" in reader.words  # escaped in the text, whole for the reader
    assert "a <b> & c" in reader.words
    assert [th["scope"] for th in reader.all("th")] == ["col", "col", "row"]
    assert len(reader.all("figure")) == len(reader.all("img")) == 6
    assert len(reader.all("h2")) == 1  # the first section has no title


def test_a_page_that_fetches_is_found() -> None:
    """The check above can fail."""
    text = report.page("Title", *example())
    for planted in (
        '<img src="https://example.org/a.png" alt="a" width="1" height="1">',
        "<script></script>",
        '<p onclick="go()"></p>',
        '<img src="data:," alt="" width="1" height="1">',
        "<p>",
    ):
        with pytest.raises(AssertionError):
            assert_stands_alone(text.replace("</main>", planted + "</main>"))


def test_pictures_are_png_of_the_stated_shape() -> None:
    figure, _ = plots.new_figure(4.0, 3.0)
    picture = report.Picture(figure, "caption", "alternative")
    head, _, content = picture.source.partition(",")
    assert head == "data:image/png;base64"
    data = io.BytesIO(base64.b64decode(content)).read(24)
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", data[16:24])
    assert (width, height) == (800, 600)
    assert picture.size == (400, 300)  # half: one dot of a dense screen for each pixel


def test_page_is_deterministic() -> None:
    assert report.page("Title", *example()) == report.page("Title", *example())


def test_writing_is_all_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "page.html"
    report.write(path, "Old", report.Section("", ["words"]))
    old = path.read_bytes()

    def fail(*_: object) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", fail)
        with pytest.raises(OSError, match="no space left"):
            report.write(path, "New", report.Section("", ["other words"]))
    with pytest.raises(jinja2.UndefinedError):
        report.write(path, "New", "no section")
    assert path.read_bytes() == old
    assert list(tmp_path.iterdir()) == [path]
    report.write(path, "New", report.Section("", ["other words"]))
    assert "other words" in path.read_text(encoding="utf-8")
    assert list(tmp_path.iterdir()) == [path]


# Pieces of the demonstration.


@pytest.mark.parametrize("level", demo.CURVE)
def test_sets_cover_what_they_promise_if_probabilities_are_right(level: float, seed: int) -> None:
    """The expectation over labels drawn from the probabilities themselves, exactly."""
    generator = np.random.default_rng(seed)
    for probabilities in generator.dirichlet(np.full(6, 0.5), size=20):
        by_label = [demo.set_coverage([k], probabilities[None], level) for k in range(6)]
        # A sum of six terms of at most 1 in double precision.
        assert np.dot(probabilities, by_label) == pytest.approx(level, abs=1e-14)


def test_set_coverage_by_hand() -> None:
    probabilities = [[0.7, 0.2, 0.1], [0.3, 0.6, 0.1], [1.0, 0.0, 0.0]]
    # At .8: .7 stands before .2, of which half enters; .6 enters whole; 0 is never held.
    assert demo.set_coverage([1, 1, 2], probabilities, 0.8) == pytest.approx((0.5 + 1 + 0) / 3)


def test_overconfidence_lowers_coverage() -> None:
    """Nine in ten are right where .99 was said."""
    probabilities = np.tile([0.01, 0.99], (10, 1))
    labels = np.r_[np.zeros(1, int), np.ones(9, int)]
    assert demo.set_coverage(labels, probabilities, 0.95) == pytest.approx(0.9 * 0.95 / 0.99)


def test_splits_are_fixed_and_disjoint() -> None:
    for load, _ in demo.TASKS:
        data, again = load(), load()
        np.testing.assert_array_equal(data.x_train, again.x_train)
        rows = {row.tobytes() for row in data.x_test}
        assert not rows & {row.tobytes() for row in data.x_train}


# A linear model: no body to compile, and an independent answer to compare with.
LINEAR = {"hidden_layer_sizes": (), "n_chains": 2, "n_warmup": 50, "n_draws": 200, "thinning": 4}


def test_one_task_from_data_to_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "TASKS", ((demo.diabetes, demo.regression),))
    said: list[str] = []
    (row,) = demo.run(tmp_path, 3, said.append, LINEAR)
    data = demo.diabetes()
    least_squares = LinearRegression().fit(data.x_train, data.y_train).predict(data.x_test)
    expected = np.sqrt(np.mean((data.y_test - least_squares) ** 2))
    # 331 rows and ten weights: the prior hardly moves the posterior mean, by much less than 5 %.
    assert row.rmse == pytest.approx(expected, rel=0.05)
    # A normal density of that width at its own errors.
    assert row.nll == pytest.approx(np.log(expected) + 0.5 * np.log(2 * np.pi) + 0.5, abs=0.1)
    # Four standard errors of a binomial share of 111 rows.
    for level, share in zip(demo.COVERAGES, row.coverage, strict=True):
        assert abs(share - level) < 4 * np.sqrt(level * (1 - level) / 111)
    assert len(row.cells) == len(demo.COLUMNS)
    assert row.cells[4] == "-"  # a regression has no accuracy
    assert "diabetes" in said[0]

    page = (tmp_path / demo.PAGE).read_text(encoding="utf-8")
    reader = assert_stands_alone(page)
    assert len(reader.all("img")) == 4
    assert row.cells[3] in reader.words
    # The same seed, the same numbers and pictures.
    (again,) = demo.run(tmp_path, 3, said.append, LINEAR)
    assert again._replace(seconds=0.0) == row._replace(seconds=0.0)
    second = Reader((tmp_path / demo.PAGE).read_text(encoding="utf-8"))
    assert second.all("img") == reader.all("img")
