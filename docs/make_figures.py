"""Makes the figures of README and documentation: `python docs/make_figures.py`.

Deterministic: the same versions on the same machine give the same bytes.
"""

from pathlib import Path

import numpy as np

from scalemix import DeepBayesRegressor, plots

FIGURES = Path(__file__).parent / "figures"


def regression_band() -> None:
    """A curve with a gap in the data: posterior mean and predictive intervals."""
    generator = np.random.default_rng(1)
    x = np.concatenate([generator.uniform(-4.0, -0.7, 60), generator.uniform(0.9, 3.0, 60)])
    y = curve(x) + generator.normal(0.0, 0.25, len(x))
    # Every row is learned from: of so few, early stopping would hold out too many.
    model = DeepBayesRegressor(
        (24, 24, 24), activation="tanh", early_stopping=False, random_state=0
    )
    model.fit(x[:, None], y)

    coverages = [0.5, 0.95]
    grid = np.linspace(-4.5, 4.0, 401)
    intervals = model.predict_interval(grid[:, None], coverages)
    figure, axes = plots.new_figure(6.4, 3.2)
    axes.plot(grid, curve(grid), "--", color=plots.GREY, linewidth=1, label="truth")
    plots.predictive_band(axes, grid, model.predict(grid[:, None]), intervals, coverages, x, y)
    figure.savefig(FIGURES / "regression_band.png", dpi=160, metadata={"Software": None})


def curve(x: np.ndarray) -> np.ndarray:
    """What the data come from, before noise of standard deviation .25."""
    return np.sin(2.0 * x) + 0.3 * x


# The network, drawn by hand.

DATA, COMPUTED, DRAWN, MOVED = "data", "computed", "drawn", "moved"
STYLE = """
text { font-family: system-ui, "Segoe UI", "DejaVu Sans", sans-serif; font-size: 15px; fill: #222; }
.symbol { font-size: 19px; font-style: italic; text-anchor: middle; }
.middle { text-anchor: middle; }
.small { font-size: 13px; fill: #555; }
.data { fill: #d9d9d9; stroke: #555; stroke-width: 1.5; }
.computed { fill: #fff; stroke: #555; stroke-width: 1.5; }
.drawn { fill: #fbe3d6; stroke: #d55e00; stroke-width: 2; }
.moved { fill: #d6e8f5; stroke: #0072b2; stroke-width: 2; }
.plate { fill: none; stroke: #767676; stroke-width: 1.3; }
.copies { fill: #d55e00; fill-opacity: .05; stroke: #d55e00; stroke-width: 1.6; stroke-dasharray: 7 5; }
.arrow { stroke: #555; stroke-width: 1.5; fill: none; marker-end: url(#head); }
"""
TAU_Z = 'τ<tspan dy="4" font-size="11">z</tspan><tspan dy="-4">&#8203;</tspan>'
DESCRIPTION = (
    "For each row i: inputs x pass the body B, which gradients move, and become features f; with "
    "noise tau_z e they are latents Z; the top layer W_0, b_0 makes predictors eta of them; eta and "
    "omega give y. Drawn at random in every sweep: Z, omega, the top layer, the scales and the "
    "noise. J copies repeat Z and omega of each row, and eta with them; rows x, y and all "
    "parameters exist once."
)


def network() -> None:
    """Where randomness enters the network, and what J copies copy."""
    middle, low = 232, 338
    parts = [
        _box(20, 160, 880, 246, "plate"),
        _text(34, 394, "each row i = 1 … n", "small"),
        _box(398, 176, 306, 218, "copies"),
        _text(551, 385, "J copies: Z and ω, and η with them", "small middle"),
        # Parameters, which exist once.
        _parameter(185, "body B", "weights of all layers", MOVED),
        _parameter(551, "top layer W₀, b₀", "Gaussian given ω and Z", DRAWN),
        _parameter(797, "scales s, noise τ₀", "of prior and likelihood", DRAWN),
        _arrow(185, 104, 185, middle - 8),
        _arrow(551, 104, 551, middle - 8),
        _arrow(702, 72, 651, 72),
        _arrow(822, 104, 822, middle - 31),
        # A row, from left to right.
        _arrow(113, middle, 247, middle),
        _arrow(303, middle, 432, middle),
        _arrow(488, middle, 613, middle),
        _arrow(669, middle, 793, middle),
        _arrow(664, low - 16, 799, middle + 20),
        _text(352, middle - 12, f"+ {TAU_Z} e", "middle"),
        _text(352, middle + 24, "e ~ N(0, I)", "small middle"),
        _node(85, middle, "x", "inputs", DATA),
        _node(275, middle, "f", "features", COMPUTED),
        _node(460, middle, "Z", "latents", DRAWN),
        _node(641, middle, "η", "b₀ + W₀′Z", COMPUTED),
        _node(641, low, "ω", "", DRAWN),
        _text(606, low + 5, "augmentation", "small", "end"),
        _node(822, middle, "y", "target", DATA),
        *_legend(444),
    ]
    body = "\n".join(parts)
    (FIGURES / "network.svg").write_text(
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 920 470" role="img" '
        f'aria-labelledby="title description">\n<title id="title">The network of scalemix</title>\n'
        f'<desc id="description">{DESCRIPTION}</desc>\n<style>{STYLE}</style>\n'
        '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0 10 5 0 10z" fill="#555"/></marker></defs>\n'
        f'<rect width="920" height="470" fill="#fff"/>\n{body}\n</svg>\n',
        encoding="utf-8",
    )


def _text(x: float, y: float, words: str, kind: str = "", anchor: str = "") -> str:
    where = f' text-anchor="{anchor}"' if anchor else ""
    return f'<text x="{x}" y="{y}" class="{kind}"{where}>{words}</text>'


def _box(x: float, y: float, width: float, height: float, kind: str) -> str:
    return f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="12" class="{kind}"/>'


def _arrow(x: float, y: float, to_x: float, to_y: float) -> str:
    return f'<path d="M{x} {y} {to_x} {to_y}" class="arrow"/>'


def _parameter(x: float, name: str, words: str, kind: str) -> str:
    box = _box(x - 95, 40, 190, 64, kind)
    return box + _text(x, 68, name, "middle") + _text(x, 90, words, "small middle")


def _node(x: float, y: float, symbol: str, words: str, kind: str) -> str:
    circle = f'<circle cx="{x}" cy="{y}" r="26" class="{kind}"/>'
    return circle + _text(x, y + 6, symbol, "symbol") + _text(x, y + 46, words, "small middle")


def _legend(y: float) -> list[str]:
    entries = (
        (40, DATA, "data"),
        (140, COMPUTED, "computed"),
        (282, MOVED, "moved by gradients (adam: a point)"),
        (584, DRAWN, "drawn at random in every sweep, exactly"),
    )
    return [
        f'<circle cx="{x}" cy="{y}" r="9" class="{kind}"/>{_text(x + 17, y + 5, words, "small")}'
        for x, kind, words in entries
    ]


if __name__ == "__main__":
    FIGURES.mkdir(exist_ok=True)
    network()
    regression_band()
