"""The parameters that both estimators share, written once."""

from typing import TypeVar

T = TypeVar("T", bound=type)

PARAMETERS = """Parameters
    ----------
    hidden_layer_sizes : tuple of int or int, default=(24, 24)
        Widths of the body; () is a Bayesian generalised linear model.
    activation : {"identity", "logistic", "tanh", "relu"}, default="relu"
        Of the hidden layers.
    residual : bool, default=False
        Add each hidden layer's input to its output (all hidden layers of one width).
    dropout : float, default=0.0
        Share of hidden units dropped while the body is optimised; off wherever features feed the
        top.
    body_prior_scale : "learn", float or one float per layer, default="learn"
        s_l: a weight of layer l has prior standard deviation s_l / sqrt(fan-in), a bias s_l. With an
        optimised body it is weight decay; "learn" means s_l^2 = fan-in there.
    likelihood : str, default="auto"
        Regression: "gaussian". Classification: "logit" and "hinge" (two classes), "multinomial".
        "auto" is "gaussian", "logit" or "multinomial".
    prior : {"ridge", "flat"} or a prior of `scalemix.priors`, default="ridge"
        On the top layer's weights; "ridge" learns its scale. "flat" is for "gaussian" only.
    engine : {"gibbs", "em", "j_copies"}, default="gibbs"
        Posterior draws; the mode; or draws annealed towards the mode. At a mode the chain with the
        highest log posterior is kept.
    body_update : {"auto", "adam"}, default="auto"
        How the body moves. "adam" optimises it: under "gibbs" in the warm-up only, after which top,
        scales and noise are sampled; under "em" and "j_copies" in every sweep.
    n_chains : int, default=8
        Independent starts, run side by side.
    n_warmup, n_draws, thinning : int or "auto", default="auto"
        Sweeps of "gibbs" before the first draw is kept (auto: `max_epochs` and 50 more), sweeps after
        it (auto: 70 times the thinning), and how many of those make one kept draw (auto: 5; up to 40
        where classes are augmented and rows are few).
    copies, copies_schedule, copies_target : int, str, str, default=10, "geometric", "map"
        Of "j_copies": J; "geometric" raises it over two thirds of the sweeps, "constant" does not;
        "map" copies the prior too, "mle" does not.
    latent_width, latent_scale : int or None, float, default=None, 1.0
        Width of a stochastic layer Z ~ N(f(x), latent_scale^2 I) between body and top; `None`:
        features go straight into the top. `latent_scale=0` is a linear bottleneck.
    noise_scale : float or None, default=None
        tau_0 of "gaussian" and "hinge". `None`: learned for "gaussian", sqrt(2) for "hinge". In
        standardised units with `standardize`.
    max_epochs : int, default=100
        Epochs of the body's optimisation, one in each sweep.
    batch_size : int or "auto", default="auto"
        Rows of a minibatch; "auto" makes 16 to 32 steps an epoch of 16 to 1024 rows.
    learning_rate : float, default=0.01
        Of Adam; constant for half of the epochs, then falling to a fiftieth.
    early_stopping, validation_fraction : bool, float, default=True, 0.1
        Hold out this share of the rows while the body is optimised, and keep the body that predicts
        them best. The top layer, scales and noise then use every row.
    standardize : bool, default=True
        Scale inputs and a real-valued target inside, and back everywhere.
    random_state : int, RandomState or None, default=None
        Same seed, same versions, same machine: the same numbers.
    verbose : int, default=0
        1 shows progress and what "auto" chose, on standard error."""


def documented(estimator: T) -> T:
    """Put the shared parameters where the docstring says {parameters}."""
    estimator.__doc__ = (estimator.__doc__ or "").replace("{parameters}", PARAMETERS)
    return estimator
