"""Parameter counts as the papers' tables give them."""

from dataclasses import dataclass

from esnlm.torch.networks.network import Network


@dataclass(frozen=True)
class ParameterCounts:
    """Numbers of parameters: trained, all, and all that are not zeros of a frozen matrix.

    Ueda et al. (2025, table 3) give ``trainable`` and ``nonzero``, rounded to millions; Ueda et
    al. (2025b, table 1) give ``trainable`` and ``total``, of which the millions are kept.
    """

    trainable: int
    total: int
    nonzero: int


def parameter_counts(network: Network) -> ParameterCounts:
    """The counts of a network; parameters that two layers share count once.

    Examples
    --------
    >>> from esnlm.torch.networks.esn import EchoStateNetwork
    >>> options = {"n_units": 10, "degree": 2, "input_degree": 3, "random_state": 0}
    >>> parameter_counts(EchoStateNetwork(7, reservoir=options, rank=4))
    ParameterCounts(trainable=75, total=255, nonzero=126)
    """
    trainable = sum(p.numel() for p in network.parameters() if p.requires_grad)
    entries, nonzero = network.frozen_weights()
    return ParameterCounts(trainable, trainable + entries, trainable + nonzero)
