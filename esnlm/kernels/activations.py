# mypy: disallow-untyped-defs=False, check-untyped-defs=False
"""Activation functions on lanes: branch-free, so that they cost no more than a polynomial."""

from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import overload

from esnlm.kernels.simd import (
    fma,
    larger,
    magnitude,
    nearest,
    power_of_two,
    smaller,
    splat,
    where_smaller,
)

TANH, RELU, IDENTITY = 0, 1, 2


@njit(inline="always")
def activated(x, code):
    """Return tanh, rectifier or identity of lanes, by code."""
    if code == TANH:
        return tanh(x)
    if code == RELU:
        return larger(x, x - x)
    return x


def tanh(x: Any) -> Any:
    """Hyperbolic tangent: error below 3e-7 in float32, two units of rounding in float64."""
    raise NotImplementedError("tanh of lanes exists only in compiled functions")


@overload(tanh, inline="always")
def _tanh(x: Any) -> Any:
    return _tanh32 if x.dtype == types.float32 else _tanh64


def _tanh32(x: Any) -> Any:
    """Rational minimax, odd degree 13 over even degree 6; its value at the clamp is 1."""
    bound = splat(np.float32(7.90531110763549805))
    x = larger(smaller(x, bound), splat(np.float32(0)) - bound)
    s = x * x
    p = fma(splat(np.float32(-2.76076847742355e-16)), s, splat(np.float32(2.00018790482477e-13)))
    p = fma(p, s, splat(np.float32(-8.60467152213735e-11)))
    p = fma(p, s, splat(np.float32(5.12229709037114e-08)))
    p = fma(p, s, splat(np.float32(1.48572235717979e-05)))
    p = fma(p, s, splat(np.float32(6.37261928875436e-04)))
    p = fma(p, s, splat(np.float32(4.89352455891786e-03)))
    q = fma(splat(np.float32(1.19825839466702e-06)), s, splat(np.float32(1.18534705686654e-04)))
    q = fma(q, s, splat(np.float32(2.26843463243900e-03)))
    q = fma(q, s, splat(np.float32(4.89352518554385e-03)))
    return x * p / q


def _tanh64(x: Any) -> Any:
    """Cephes: rational below 0.625, else 1 - 2 / (exp(2 |x|) + 1) with the sign of x."""
    s = x * x
    p = fma(splat(-9.64399179425052238628e-1), s, splat(-9.92877231001918586564e1))
    p = fma(p, s, splat(-1.61468768441708447952e3))
    q = s + splat(1.12811678491632931402e2)
    q = fma(q, s, splat(2.23548839060100448583e3))
    q = fma(q, s, splat(4.84406305325125486048e3))
    near = fma(x * s, p / q, x)
    size = magnitude(x)
    one = splat(1.0)
    far = one - splat(2.0) / (_exp(smaller(size + size, splat(50.0))) + one)
    far = where_smaller(x, splat(0.0), splat(0.0) - far, far)
    return where_smaller(size, splat(0.625), near, far)


@njit(inline="always")
def _exp(x):
    """Cephes: exp(r) 2^n with r = x - n log 2, log 2 in two parts."""
    n = nearest(x * splat(1.4426950408889634073599))
    r = fma(n, splat(-6.93145751953125e-1), x)
    r = fma(n, splat(-1.42860682030941723212e-6), r)
    s = r * r
    p = fma(splat(1.26177193074810590878e-4), s, splat(3.02994407707441961300e-2))
    p = fma(p, s, splat(9.99999999999999999910e-1)) * r
    q = fma(splat(3.00198505138664455042e-6), s, splat(2.52448340349684104192e-3))
    q = fma(q, s, splat(2.27265548208155028766e-1))
    q = fma(q, s, splat(2.0))
    ratio = p / (q - p)
    return fma(splat(2.0), ratio, splat(1.0)) * power_of_two(n)
