"""The hinge head draws from its joint law p(theta) p(Z | theta) prod L(y_i, eta_i) / const."""

from typing import Any

import joint
import pytest
from joint import case

from scalemix.likelihoods import Hinge
from scalemix.priors import Ridge

pytestmark = pytest.mark.usefixtures("x64")

WIDE = 2**0.5
"""tau_z with tau_z^2 = 2."""

FAST: dict[str, dict[str, Any]] = {
    "one latent, wide": {
        "prior": Ridge(2.5, intercept_scale=2.5),
        "width": 1,
        "latent_scale": WIDE,
        "power": [1, 1, 1, 1, 0],  # the last row is padding
    },
}
SLOW: dict[str, dict[str, Any]] = {
    "no latents": {"prior": Ridge(intercept_scale=2.5), "rows": 6},
    "sharp loss, no latents": {
        "likelihood": Hinge(noise_scale=0.6),
        "prior": Ridge(2.5, intercept_scale=2.5),
    },
    "sharp loss, one latent": {
        "likelihood": Hinge(noise_scale=0.6),
        "prior": Ridge(intercept_scale=1.0),
        "width": 1,
        "latent_scale": 1.0,
    },
    "three latents, wide": {
        "prior": Ridge(2.5, intercept_scale=2.5),
        "width": 3,
        "latent_scale": WIDE,
        "rows": 4,
    },
    "fractional weights": {
        "prior": Ridge(2.5, intercept_scale=2.5),
        "power": [2.6, 0.37, 1, 3, 0],
    },
    "one latent, body drawn": {
        "prior": Ridge(2.5, intercept_scale=2.5),
        "width": 1,
        "latent_scale": WIDE,
        "body_update": joint.LinearBody(),
    },
}


@pytest.mark.parametrize("name", FAST)
def test_leaves_the_joint_law(name: str, seed: int) -> None:
    joint.assert_invariant(case(**{"likelihood": Hinge(), **FAST[name]}), seed)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*FAST, *SLOW])
def test_leaves_the_joint_law_with_more_states(name: str, seed: int) -> None:
    settings = {**FAST, **SLOW}[name]
    joint.assert_invariant(case(**{"likelihood": Hinge(), **settings}), seed, states=120_000)
