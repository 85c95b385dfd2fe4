"""Benchmarks run, on small sizes; what they measure is for a quiet machine and no test."""

import numpy as np
import pytest

from scalemix.benchmarks import copies
from scalemix.likelihoods import Gaussian, Multinomial


def test_every_head_is_measured_where_it_exists() -> None:
    measured = [(likelihood.name, scale) for likelihood, scale in copies.settings()]
    assert measured == [
        ("gaussian", 0.0), ("hinge", 0.0), ("logit", 0.0), ("multinomial", 0.0),
        ("gaussian", 0.1), ("hinge", 0.1), ("logit", 0.1),
    ]  # fmt: skip


def test_rows_have_the_targets_of_their_likelihood() -> None:
    for likelihood, _ in copies.settings():
        batch = copies.rows(likelihood, 300, np.random.default_rng(0))
        y = np.asarray(batch.y)[:300]
        assert float(np.sum(batch.power)) == 300
        if likelihood.target == "signs":
            assert set(np.unique(y)) == {-1.0, 1.0}
        if likelihood.target == "indicators":
            np.testing.assert_array_equal(y.sum(axis=1), np.ones(300))


def test_table_has_a_line_for_each_timing() -> None:
    head, line = copies.lines([copies.Timing("hinge", 0.1, 0.02, 0.05)])
    assert head.split()[0] == "head"
    assert line.split() == ["hinge", "0.1", "0.02000", "0.05000", "2.50"]


@pytest.mark.slow
@pytest.mark.parametrize(("likelihood", "scale"), [(Gaussian(), 0.1), (Multinomial(), 0.0)])
def test_both_numbers_of_copies_are_timed(likelihood, scale: float) -> None:
    timing = copies.measure(likelihood, scale, n=64, turns=1)
    assert timing.one > 0
    assert timing.many > 0
    assert timing.ratio == timing.many / timing.one
