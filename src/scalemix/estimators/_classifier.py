"""`DeepBayesClassifier`."""

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from scalemix import posterior
from scalemix.data import refuse_text_columns
from scalemix.estimators import _options, _settings
from scalemix.estimators._base import DeepBayes, Floats, count, scaling
from scalemix.estimators._docs import documented
from scalemix.priors import Prior


@documented
class DeepBayesClassifier(ClassifierMixin, DeepBayes):
    """Bayesian deep classification: a deep body under an exactly augmented top layer.

    {parameters}
    class_weight : None, "balanced" or dict, default=None
        As in scikit-learn; class weights are sample weights, and shift the predicted probabilities
        towards the prevalence that they imply.
    temperature : 1, default=1
        Sharpens the pooled probabilities, p^(1/T) renormalised; 1 is the posterior average.

    Attributes
    ----------
    classes_ : array
        The labels, sorted.
    diagnostics_ : dict
        R-hat, effective sample sizes and Monte Carlo errors of quantities that no symmetry of the
        network changes; failed sweeps; what was sampled and what was optimised.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Examples
    --------
    >>> import numpy as np
    >>> from scalemix import DeepBayesClassifier
    >>> X = np.linspace(-2, 2, 60)[:, None]
    >>> y = np.where(np.abs(X[:, 0]) < 1, "in", "out")
    >>> model = DeepBayesClassifier(n_chains=2, max_epochs=20, random_state=0).fit(X, y)
    >>> model.predict_proba(X[:3]).shape
    (3, 2)
    """

    classes_: NDArray

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
        class_weight: Any = None,
        temperature: float = 1,
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
        self.class_weight = class_weight
        self.temperature = temperature
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the chains.

        Parameters
        ----------
        X
            Array or frame of numbers, (n, p).
        y
            Labels of any kind, (n,), of at least two classes.
        sample_weight
            (n,); a weight is a power on its row's likelihood, 2 is a repeated row.

        Returns
        -------
        self
        """
        _options.check(self, _options.CLASSIFICATION_LIKELIHOODS)
        if self.temperature != 1:
            raise ValueError(f"found temperature={self.temperature!r}; expected 1")
        refuse_text_columns(X)
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        labels = column_or_1d(y, warn=True)
        self.classes_, index = np.unique(labels, return_inverse=True)
        name = self._likelihood_name()
        likelihood = _settings.likelihood(name, self.noise_scale)
        model = _settings.model(self.get_params(deep=False), likelihood, self.standardize)
        weights = self._weights(sample_weight, X)
        if self.class_weight is not None:
            by_class = compute_class_weight(self.class_weight, classes=self.classes_, y=labels)
            weights = weights * by_class[index]
        self._scaling_x = scaling(X, weights, self.standardize)
        targets: Any = np.eye(len(self.classes_))[index]
        if likelihood.target == "signs":
            targets = 2.0 * index[:, None] - 1
        self._run(model, self._scaling_x.forward(X), targets, weights)
        return self

    def _likelihood_name(self) -> str:
        n_classes = len(self.classes_)
        if n_classes < 2:
            raise ValueError(
                f"found 1 class in y ({self.classes_[0]!r}); expected at least two: check the labels"
            )
        if self.likelihood == "auto":
            return "logit" if n_classes == 2 else "multinomial"
        if n_classes > 2 and self.likelihood in ("logit", "hinge"):
            raise ValueError(
                f"found {n_classes} classes with likelihood {self.likelihood!r}, which takes two; use "
                "likelihood='multinomial' or 'auto'"
            )
        return self.likelihood

    def predict_log_proba(self, X: ArrayLike) -> Floats:
        """Log of `predict_proba`; finite where a class is merely improbable.

        Parameters
        ----------
        X
            (n, p)

        Returns
        -------
        (n, classes)
        """
        check_is_fitted(self)
        return posterior.log_probabilities(self._posterior, self._rows(X))

    def predict_proba(self, X: ArrayLike) -> Floats:
        """Posterior average of the class probabilities.

        For `hinge`, whose loss is no density, those of the normalised loss,
        logit p = (2 / tau_0^2) {(1 + eta)_+ - (1 - eta)_+}.

        Parameters
        ----------
        X
            (n, p)

        Returns
        -------
        (n, classes), columns in the order of `classes_`
        """
        probabilities = np.exp(self.predict_log_proba(X))
        return probabilities / probabilities.sum(axis=1, keepdims=True)

    def decision_function(self, X: ArrayLike) -> Floats:
        """Log-odds of `predict_proba` (two classes, (n,)), or its logarithm (more, (n, classes)).

        Parameters
        ----------
        X
            (n, p)
        """
        log_probabilities = self.predict_log_proba(X)
        if len(self.classes_) == 2:
            return log_probabilities[:, 1] - log_probabilities[:, 0]
        return log_probabilities

    def predict(self, X: ArrayLike) -> NDArray:
        """The most probable label.

        Parameters
        ----------
        X
            (n, p)

        Returns
        -------
        (n,)
        """
        log_probabilities = self.predict_log_proba(X)
        return self.classes_[np.argmax(log_probabilities, axis=1)]

    def log_predictive_density(self, X: ArrayLike, y: ArrayLike) -> Floats:
        """Log of the predicted probability of the labels y.

        Parameters
        ----------
        X
            (n, p)
        y
            (n,) labels that `fit` has seen.

        Returns
        -------
        (n,)
        """
        log_probabilities = self.predict_log_proba(X)
        labels = column_or_1d(y)
        if len(labels) != len(log_probabilities):
            raise ValueError(
                f"found {len(labels)} labels for {len(log_probabilities)} rows of X; expected as many"
            )
        unknown = np.setdiff1d(labels, self.classes_)
        if unknown.size:
            raise ValueError(
                f"found label {unknown[0]!r} in y; expected one of {list(self.classes_)}"
            )
        index = np.searchsorted(self.classes_, labels)
        return log_probabilities[np.arange(len(labels)), index]

    def sample_y(self, X: ArrayLike, n_samples: int = 1, random_state: Any = None) -> NDArray:
        """Draws of new labels; a sample uses one draw of the posterior for all rows.

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
        (n, n_samples)
        """
        check_is_fitted(self)
        seed = check_random_state(random_state).randint(0, 2**32, size=2, dtype=np.uint32)
        samples = posterior.sample(
            self._posterior, self._rows(X), count("n_samples", n_samples), seed
        )
        if samples.shape[2] == 1:
            return self.classes_[(samples[:, :, 0] > 0).astype(int)]
        return self.classes_[np.argmax(samples, axis=2)]

    def sample_f(
        self, X: ArrayLike, n_samples: int | None = None, random_state: Any = None
    ) -> Floats:
        """Posterior draws of the predictor: log-odds for `logit`, margins for `hinge`.

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
        (n, n_samples); for `multinomial` (n, classes, n_samples)
        """
        check_is_fitted(self)
        eta = posterior.eta(self._posterior, self._rows(X))
        if n_samples is not None:
            which = check_random_state(random_state).randint(
                0, eta.shape[1], size=count("n_samples", n_samples)
            )
            eta = eta[:, which]
        eta = np.moveaxis(eta, 1, -1)
        return eta[:, 0] if eta.shape[1] == 1 else eta

    def _own_state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        kind = "object" if self.classes_.dtype == object else self.classes_.dtype.str
        return {}, {"classes": self.classes_.tolist(), "classes_dtype": kind}

    def _set_own_state(self, arrays: dict[str, np.ndarray], header: dict[str, Any]) -> None:
        self.classes_ = np.array(header["classes"], dtype=np.dtype(header["classes_dtype"]))
