"""Settings of each network for a number of trained parameters, so that systems compare."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice, takewhile
from typing import Any

from esnlm.torch.networks import attention_readout, transformer

Settings = dict[str, Any]

_LARGEST = 1 << 20


@dataclass(frozen=True)
class Family:
    """Settings of a network by size, those published, and the trained parameters for V tokens."""

    settings: Callable[[], Iterator[Settings]]
    count: Callable[[Settings, int], int]
    published: tuple[Settings, ...] = ()


def settings_of_size(
    name: str, n_parameters: int, n_tokens: int, given: Mapping[str, Any] | None = None
) -> Settings:
    """Constructor arguments beside ``n_tokens`` whose trained parameters are nearest.

    A published size within 5 % goes first. Settings that are ``given`` stay; what is not said has
    the network's default.

    Raises
    ------
    ValueError
        The network has no family of sizes, or none of it is within a quarter of ``n_parameters``.

    Examples
    --------
    >>> settings_of_size("aerc", 15_000, 60)
    {'n_units': 75, 'n_hidden': 13}
    >>> settings_of_size("lstm", 54_000_000, 50_257)
    {'n_units': 516}
    """
    if name not in FAMILIES:
        raise ValueError(
            f"--sizes knows no sizes of {name}: give its settings, as in {name}:NAME=VALUE, or a"
            f" model of {', '.join(FAMILIES)}"
        )
    family = FAMILIES[name]

    def distance(settings: Settings) -> int:
        return abs(family.count(settings, n_tokens) - n_parameters)

    def candidates() -> Iterator[Settings]:
        yield from (merged(settings, given or {}) for settings in family.settings())

    for settings in family.published:
        chosen = merged(settings, given or {})
        if distance(chosen) <= 0.05 * n_parameters:
            return chosen
    smaller = takewhile(lambda s: family.count(s, n_tokens) < 4 * n_parameters, candidates())
    best = min(smaller, key=distance, default=next(candidates()))
    if distance(best) > 0.25 * n_parameters:
        near = family.count(best, n_tokens)
        raise ValueError(
            f"no {name} with {n_tokens} tokens has about {n_parameters} trained parameters: the"
            f" nearest has {near}"
        )
    return best


def is_sized(name: str, given: Mapping[str, Any]) -> bool:
    """Whether the given settings leave nothing of the network's size to choose.

    Examples
    --------
    >>> is_sized("aerc", {"n_units": 9, "n_hidden": 2}), is_sized("esn", {"rank": 8})
    (True, False)
    """
    if name not in FAMILIES:
        return bool(given)
    first, second = islice(FAMILIES[name].settings(), 2)
    return merged(first, given) == merged(second, given)


def merged(settings: Mapping[str, Any], given: Mapping[str, Any]) -> Settings:
    """Settings with the given ones over them, mappings entry by entry.

    Examples
    --------
    >>> merged({"reservoir": {"n_units": 9}, "rank": 2}, {"reservoir": {"degree": 4}})
    {'reservoir': {'n_units': 9, 'degree': 4}, 'rank': 2}
    """
    both = dict(settings)
    for name, value in given.items():
        before = both.get(name)
        inner = isinstance(value, Mapping) and isinstance(before, Mapping)
        both[name] = {**before, **value} if inner else value  # type: ignore[dict-item]
    return both


def _units(**fixed: Any) -> Callable[[], Iterator[Settings]]:
    return lambda: ({"n_units": n} | fixed for n in range(1, _LARGEST))


def _reservoirs() -> Iterator[Settings]:
    yield from ({"reservoir": {"n_units": n}} for n in range(1, _LARGEST))


def _low_rank(settings: Settings, v: int) -> int:
    n = settings["reservoir"]["n_units"]
    rank = settings.get("rank", 512)
    if rank is None:
        return int(v * (n + 1))
    return int(min(rank, n, v) * (n + v) + v)


def _lstm(settings: Settings, v: int) -> int:
    h = settings["n_units"]
    return int(2 * v * h + v + settings.get("n_layers", 1) * 8 * h * (h + 1))


def _attention() -> Iterator[Settings]:
    yield from ({"n_units": 5 * h, "n_hidden": h} for h in range(1, 1 << 10))


def _attention_count(settings: Settings, v: int) -> int:
    n, h = settings["n_units"], settings["n_hidden"]
    return int(2 * n * h + h + h * h * n + h * v + v)


def _transformers() -> Iterator[Settings]:
    yield from ({"n_hidden": f, "n_heads": 4, "n_layers": 4} for f in range(4, 68, 4))
    yield from ({"n_hidden": f, "n_heads": 8, "n_layers": 8} for f in range(36, 1 << 13, 4))


def _transformer_count(settings: Settings, v: int) -> int:
    d, f = settings.get("n_dims", 16), settings["n_hidden"]
    return int(settings["n_layers"] * (4 * d * d + 9 * d + 2 * d * f + f) + 2 * d * v + v)


def _stacked() -> Iterator[Settings]:
    """Widths in the proportion of Mahto et al., 1150 to 400."""
    yield from ({"n_units": round(2.875 * d), "n_dims": d} for d in range(1, 1 << 13))


def _stacked_count(settings: Settings, v: int) -> int:
    h, d = settings["n_units"], settings["n_dims"]
    return int(12 * h * h + 8 * h * d + 4 * d * d + 16 * h + 8 * d + v * d + v)


def _gpt2() -> Iterator[Settings]:
    """Heads of 64 dimensions; depth and width grow together, through 12 layers of 768."""
    yield from ({"n_units": d, "n_heads": 1, "n_layers": 1} for d in range(4, 64, 4))
    for d in range(64, 1 << 13, 64):
        for n_layers in range(max(1, d // 96), d // 48 + 2):
            yield {"n_units": d, "n_heads": d // 64, "n_layers": n_layers}


def _gpt2_count(settings: Settings, v: int) -> int:
    d = settings["n_units"]
    return int(
        (v + settings.get("context", 1024)) * d
        + settings["n_layers"] * (12 * d * d + 13 * d)
        + 2 * d
    )


def _layered() -> Iterator[Settings]:
    """Depth and width grow together, through the paper's 16 layers of 512."""
    for d in chain(range(4, 64, 4), range(64, 1 << 12, 16)):
        for n_layers in range(max(1, d // 40), d // 24 + 2):
            yield {"n_dims": d, "n_layers": n_layers}


def _layered_count(settings: Settings, v: int) -> int:
    d, e = settings["n_dims"], settings.get("expansion", 4)
    ends = 2 if settings.get("reservoir_gradient") else 0  # of the LayerNorm before a reservoir
    return int(
        settings["n_layers"] * ((12 + e) * d * d + (15 + 2 * e + ends) * d + 2) + (2 + v) * d
    )


_ATTENTION_SIZES = tuple({"n_units": n, "n_hidden": h} for n, h in attention_readout.SIZES)
_TRANSFORMER_SIZES = tuple(
    {"n_hidden": f, "n_heads": heads, "n_layers": layers} for f, heads, layers in transformer.SIZES
)
#: By the names of `esnlm.torch.networks.registry.NETWORKS`; each in the order of its parameters.
FAMILIES: dict[str, Family] = {
    "esn": Family(_reservoirs, _low_rank),
    "esn+i": Family(_reservoirs, lambda s, v: 2 * v * s["reservoir"]["n_units"] + v),
    "lstm": Family(_units(), _lstm),
    "gpt2": Family(_gpt2, _gpt2_count, ({"n_units": 768, "n_heads": 12, "n_layers": 12},)),
    "awd-lstm": Family(_stacked, _stacked_count),
    "mts-lstm": Family(_stacked, lambda s, v: _stacked_count(s, v) - 8 * s["n_units"]),
    "char-esn": Family(_units(), lambda s, v: v * (s["n_units"] + 1)),
    "aerc": Family(_attention, _attention_count, _ATTENTION_SIZES),
    "transformer": Family(_transformers, _transformer_count, _TRANSFORMER_SIZES),
    "laerc": Family(_layered, _layered_count),
}
