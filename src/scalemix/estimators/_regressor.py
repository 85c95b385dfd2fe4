"""`DeepBayesRegressor`."""

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from scalemix import posterior
from scalemix.data import Scaling, refuse_text_columns
from scalemix.estimators import _diagnostics, _options, _settings
from scalemix.estimators._base import DeepBayes, Floats, _single, check_alpha, count, scaling
from scalemix.estimators._docs import documented
from scalemix.priors import Prior


@documented
class DeepBayesRegressor(RegressorMixin, DeepBayes):
    """Bayesian deep regression with intervals: a deep body under an exactly Gaussian top layer.

    {parameters}

    Attributes
    ----------
    diagnostics_ : dict
        R-hat, effective sample sizes and Monte Carlo errors of quantities that no symmetry of the
        network changes; failed sweeps; what was sampled and what was optimised.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Examples
    --------
    >>> import numpy as np
    >>> from scalemix import DeepBayesRegressor
    >>> X = np.linspace(-2, 2, 60)[:, None]
    >>> y = np.sin(2 * X[:, 0])
    >>> model = DeepBayesRegressor(n_chains=2, max_epochs=20, random_state=0).fit(X, y)
    >>> model.predict_interval(X[:3], coverage=0.9).shape
    (3, 2)
    """

    _scaling_y: Scaling
    _flat: bool
    """Whether y was one-dimensional."""

    def __init__(
        self,
        hidden_layer_sizes: Any = (24, 24),
        *,
        activation: str = "relu",
        residual: bool = False,
        dropout: float = 0.0,
        body_prior_scale: Any = "learn",
        likelihood: str = "auto",
        prior: str | Prior = "ridge",
        engine: str = "gibbs",
        body_update: str = "auto",
        n_chains: int = 8,
        n_warmup: int | str = "auto",
        n_draws: int | str = "auto",
        thinning: int | str = "auto",
        copies: int = 10,
        copies_schedule: str = "geometric",
        copies_target: str = "map",
        latent_width: int | None = None,
        latent_scale: float = 1.0,
        noise_scale: float | None = None,
        max_epochs: int = 100,
        batch_size: int | str = "auto",
        learning_rate: float = 0.01,
        early_stopping: bool = True,
        validation_fraction: float = 0.1,
        standardize: bool = True,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.residual = residual
        self.dropout = dropout
        self.body_prior_scale = body_prior_scale
        self.likelihood = likelihood
        self.prior = prior
        self.engine = engine
        self.body_update = body_update
        self.n_chains = n_chains
        self.n_warmup = n_warmup
        self.n_draws = n_draws
        self.thinning = thinning
        self.copies = copies
        self.copies_schedule = copies_schedule
        self.copies_target = copies_target
        self.latent_width = latent_width
        self.latent_scale = latent_scale
        self.noise_scale = noise_scale
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.standardize = standardize
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        """Several outputs are welcome."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        return tags

    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the chains.

        Parameters
        ----------
        X
            Array or frame of numbers, (n, p), at least two rows.
        y
            Numbers, (n,) or (n, q).
        sample_weight
            (n,); a weight is a power on its row's likelihood, 2 is a repeated row.

        Returns
        -------
        self
        """
        _options.check(self, _options.REGRESSION_LIKELIHOODS)
        refuse_text_columns(X)
        X, y = validate_data(
            self, X, y, dtype=np.float64, multi_output=True, y_numeric=True, ensure_min_samples=2
        )
        name = "gaussian" if self.likelihood == "auto" else self.likelihood
        likelihood = _settings.likelihood(name, self.noise_scale)
        model = _settings.model(self.get_params(deep=False), likelihood, self.standardize)
        weights = self._weights(sample_weight, X)
        targets = np.asarray(y, np.float64).reshape(len(X), -1)
        self._flat = np.ndim(y) == 1
        self._scaling_x = scaling(X, weights, self.standardize)
        self._scaling_y = scaling(targets, weights, self.standardize)
        self._run(model, self._scaling_x.forward(X), self._scaling_y.forward(targets), weights)
        return self

    def _squeezed(self, values: NDArray) -> NDArray:
        """Drop the axis of outputs (the second) where y had none."""
        return values[:, 0] if self._flat else values

    def predict(self, X: ArrayLike, return_std: bool = False) -> Floats | tuple[Floats, Floats]:
        """Posterior predictive mean, and the standard deviation of a new observation.

        Parameters
        ----------
        X
            (n, p)
        return_std
            Also return the standard deviation.

        Returns
        -------
        mean, or (mean, std): each (n,), or (n, q)
        """
        mean, aleatoric, epistemic = posterior.moments(self._posterior_of_fit(), self._rows(X))
        centre = self._squeezed(self._scaling_y.backward(mean))
        if not return_std:
            return centre
        return centre, self._squeezed(np.sqrt(aleatoric + epistemic) * self._scaling_y.scale)

    def _posterior_of_fit(self) -> posterior.Posterior:
        check_is_fitted(self)
        return self._posterior

    def predict_quantiles(self, X: ArrayLike, alpha: ArrayLike) -> Floats:
        """Quantiles of a new observation: the averaged distribution function, inverted.

        Parameters
        ----------
        X
            (n, p)
        alpha
            Levels above 0 and below 1.

        Returns
        -------
        (n, k), or (n, q, k); non-decreasing in alpha
        """
        levels = check_alpha("alpha", alpha)
        values = posterior.quantiles(self._posterior_of_fit(), self._rows(X), levels)
        return self._squeezed(
            values * self._scaling_y.scale[:, None] + self._scaling_y.mean[:, None]
        )

    def predict_interval(self, X: ArrayLike, coverage: ArrayLike = 0.9) -> Floats:
        """Central predictive interval for a new observation.

        Parameters
        ----------
        X
            (n, p)
        coverage
            Share of new observations inside, above 0 and below 1; or several of them.

        Returns
        -------
        (n, 2), or (n, 2, k) for a list of coverages; with q outputs (n, q, 2) or (n, q, 2, k)
        """
        levels = check_alpha("coverage", coverage)
        alpha = np.concatenate([(1 - levels) / 2, (1 + levels) / 2])
        values = self.predict_quantiles(X, alpha)
        ends = values.reshape(*values.shape[:-1], 2, len(levels))
        return ends[..., 0] if np.ndim(coverage) == 0 else ends

    def sample_y(self, X: ArrayLike, n_samples: int = 1, random_state: Any = None) -> Floats:
        """Draws of new observations; a sample uses one draw of the posterior for all rows.

        Parameters
        ----------
        X
            (n, p)
        n_samples
            How many.
        random_state
            As in scikit-learn.

        Returns
        -------
        (n, n_samples), or (n, q, n_samples)
        """
        seed = check_random_state(random_state).randint(0, 2**32, size=2, dtype=np.uint32)
        samples = posterior.sample(
            self._posterior_of_fit(), self._rows(X), count("n_samples", n_samples), seed
        )
        return self._squeezed(np.moveaxis(self._scaling_y.backward(samples), 1, -1))

    def sample_f(
        self, X: ArrayLike, n_samples: int | None = None, random_state: Any = None
    ) -> Floats:
        """Posterior draws of the noise-free predictor, in the units of y.

        Parameters
        ----------
        X
            (n, p)
        n_samples
            `None`: every kept draw, chains in order; else that many, drawn at random.
        random_state
            As in scikit-learn.

        Returns
        -------
        (n, n_samples), or (n, q, n_samples)
        """
        eta = posterior.eta(self._posterior_of_fit(), self._rows(X))
        if n_samples is not None:
            which = check_random_state(random_state).randint(
                0, eta.shape[1], size=count("n_samples", n_samples)
            )
            eta = eta[:, which]
        return self._squeezed(np.moveaxis(self._scaling_y.backward(eta), 1, -1))

    def log_predictive_density(self, X: ArrayLike, y: ArrayLike) -> Floats:
        """Log of the posterior average of the density at y, in the units of y.

        Parameters
        ----------
        X
            (n, p)
        y
            (n,), or (n, q): their joint density.

        Returns
        -------
        (n,)
        """
        x = self._rows(X)
        targets = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y").reshape(
            -1, len(self._scaling_y.scale)
        )
        if len(targets) != len(x):
            raise ValueError(
                f"found {len(targets)} targets for {len(x)} rows of X; expected as many"
            )
        standard = _single(self._scaling_y.forward(targets), "y")
        density = posterior.log_density(self._posterior_of_fit(), x, standard)
        return density - np.sum(np.log(self._scaling_y.scale))

    def decompose_variance(self, X: ArrayLike) -> tuple[Floats, Floats]:
        """Split the variance of a new observation.

        Aleatoric is the posterior mean of the noise, epistemic the posterior variance of the mean;
        they add up to the square of `predict`'s std. At a mode (`em`, `j_copies`) there is no
        posterior, and epistemic is 0.

        Parameters
        ----------
        X
            (n, p)

        Returns
        -------
        aleatoric, epistemic: each (n,), or (n, q)
        """
        _, aleatoric, epistemic = posterior.moments(self._posterior_of_fit(), self._rows(X))
        if self.diagnostics_["engine"] in _diagnostics.MODES:
            aleatoric, epistemic = aleatoric + epistemic, np.zeros_like(epistemic)
        square = self._scaling_y.scale**2
        return self._squeezed(aleatoric * square), self._squeezed(epistemic * square)

    def _own_state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        arrays = {"scaling_y/mean": self._scaling_y.mean, "scaling_y/scale": self._scaling_y.scale}
        return arrays, {"flat": bool(self._flat)}

    def _set_own_state(self, arrays: dict[str, np.ndarray], header: dict[str, Any]) -> None:
        self._scaling_y = Scaling(arrays["scaling_y/mean"], arrays["scaling_y/scale"])
        self._flat = header["flat"]
