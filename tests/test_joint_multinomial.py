"""The softmax head draws from its joint law, class after class."""

from typing import Any

import joint
import pytest
from joint import case

from scalemix.likelihoods import Multinomial
from scalemix.priors import Ridge

pytestmark = pytest.mark.usefixtures("x64")

FAST: dict[str, dict[str, Any]] = {
    "three classes, wide": {
        "prior": Ridge(2.5, intercept_scale=2.5),
        "targets": 3,
        "power": [1, 1, 1, 1, 0],  # the last row is padding
    },
}
SLOW: dict[str, dict[str, Any]] = {
    "three classes, learned scale": {
        "prior": Ridge(intercept_scale=2.5),
        "targets": 3,
        "rows": 8,
    },
    "four classes": {"prior": Ridge(2.5, intercept_scale=2.5), "targets": 4},
    "fractional weights": {
        "prior": Ridge(2.5, intercept_scale=2.5),
        "targets": 3,
        "power": [2.6, 0.37, 1, 5.5, 0],
    },
}


@pytest.mark.parametrize("name", FAST)
def test_leaves_the_joint_law(name: str, seed: int) -> None:
    joint.assert_invariant(case(Multinomial(), **FAST[name]), seed)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*FAST, *SLOW])
def test_leaves_the_joint_law_with_more_states(name: str, seed: int) -> None:
    joint.assert_invariant(case(Multinomial(), **{**FAST, **SLOW}[name]), seed, states=120_000)
