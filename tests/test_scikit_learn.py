"""The estimators keep scikit-learn's contract, and compile few programs while they are checked."""

from collections import Counter
from collections.abc import Callable, Iterator

import jax
import pytest
from sklearn.base import BaseEstimator
from sklearn.utils.estimator_checks import parametrize_with_checks

from scalemix import DeepBayesClassifier, DeepBayesRegressor

# Small, but enough for the checks that ask for a fit better than chance.
SMALL = {
    "hidden_layer_sizes": (8,),
    "n_chains": 2,
    "max_epochs": 20,
    "n_warmup": 30,
    "n_draws": 20,
    "thinning": 1,
    "batch_size": 32,
    "random_state": 0,
}

STOCHASTIC = "minibatches in a random order: equal in law to repeated rows, not in numbers"
EXPECTED_FAILURES = {
    "check_sample_weight_equivalence_on_dense_data": STOCHASTIC,
    "check_sample_weight_equivalence_on_sparse_data": STOCHASTIC,
}

MOST_PROGRAMS = 25

compiled: Counter[str] = Counter()


@pytest.fixture(scope="module")
def events() -> Iterator[list[str]]:
    """Every program that XLA compiles, while the module runs."""
    seen: list[str] = []

    def listen(event: str, duration: float, **_: object) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            seen.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield seen
    jax.monitoring.unregister_event_duration_listener(listen)


# Chains as short as these have not settled, and say so.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks(
    [DeepBayesRegressor(**SMALL), DeepBayesClassifier(**SMALL)],
    expected_failed_checks=lambda estimator: EXPECTED_FAILURES,
)
def test_contract(
    events: list[str], estimator: BaseEstimator, check: Callable[[BaseEstimator], None]
) -> None:
    before = len(events)
    try:
        check(estimator)
    finally:
        compiled[type(estimator).__name__] += len(events) - before


@pytest.mark.parametrize("name", ["DeepBayesRegressor", "DeepBayesClassifier"])
def test_the_checks_compile_few_programs(name: str) -> None:
    # Rows are padded to few sizes: some 45 shapes of rows become 25 programs or fewer.
    assert compiled[name] <= MOST_PROGRAMS, compiled
