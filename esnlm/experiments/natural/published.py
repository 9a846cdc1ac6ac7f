"""Figures of Ueda et al., "Syntactic Learnability of Echo State Neural Language Models at Scale".

Echo state networks with a low-rank softmax (rank 512) trained by AdamW for one epoch on BabyLM,
about 100 million words; means of four runs and their standard errors.
"""

from typing import NamedTuple


class Published(NamedTuple):
    """Validation loss (nats a token), BLiMP (%), and the standard error of each."""

    nll: float
    nll_error: float
    blimp: float
    blimp_error: float


#: Table 3: units -> results; 32 connections a unit, leak rates uniform in (0, 1).
BY_SIZE = {
    1024: Published(5.024, 0.003, 56.2, 0.3),
    2048: Published(4.887, 0.001, 56.1, 0.3),
    4096: Published(4.794, 0.011, 57.9, 0.4),
    8192: Published(4.708, 0.011, 58.5, 0.3),
    16384: Published(4.642, 0.008, 59.2, 0.4),
    32768: Published(4.630, 0.008, 60.0, 0.3),
    65536: Published(4.690, 0.023, 60.5, 0.2),
}
#: Table 4: connectivity of 4 096 units, of recurrent and input weights -> results.
BY_CONNECTIVITY = {
    2.0**-12: Published(5.497, 0.027, 55.3, 0.7),
    2.0**-11: Published(5.080, 0.037, 56.1, 0.4),
    2.0**-10: Published(4.833, 0.017, 56.8, 0.6),
    2.0**-9: Published(4.761, 0.002, 58.3, 0.3),
    2.0**-8: Published(4.756, 0.002, 56.9, 0.3),
    2.0**-7: Published(4.794, 0.011, 57.9, 0.4),
    2.0**-6: Published(4.820, 0.017, 57.6, 0.5),
    2.0**-5: Published(4.836, 0.005, 56.7, 0.1),
    2.0**-4: Published(4.890, 0.014, 57.7, 0.3),
    2.0**-3: Published(4.943, 0.011, 56.9, 0.5),
    2.0**-2: Published(4.994, 0.015, 56.6, 0.3),
    2.0**-1: Published(5.041, 0.008, 56.7, 0.2),
    1.0: Published(5.102, 0.008, 56.3, 0.3),
}
#: Table 5: least leak rate of 4 096 units, the greatest being 1 -> results.
BY_MIN_LEAK = {
    0.0: Published(4.794, 0.011, 57.9, 0.4),
    0.1: Published(4.803, 0.014, 57.7, 0.3),
    0.2: Published(4.823, 0.015, 57.6, 0.5),
    0.3: Published(4.829, 0.009, 57.8, 0.4),
    0.4: Published(4.845, 0.007, 57.7, 0.4),
    0.5: Published(4.861, 0.006, 57.5, 0.4),
    0.6: Published(4.884, 0.006, 57.4, 0.4),
    0.7: Published(4.909, 0.006, 57.4, 0.4),
    0.8: Published(4.936, 0.005, 57.2, 0.4),
    0.9: Published(4.971, 0.004, 57.1, 0.3),
    1.0: Published(5.018, 0.005, 56.8, 0.2),
}
