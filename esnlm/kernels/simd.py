"""Vectors of one cache line inside compiled functions: 16 float32 or 8 float64.

numba's loops leave it to LLVM whether a loop becomes vector code; here a value of type ``Lanes`` is
an LLVM vector, so sums stay in registers. LLVM splits it where the processor's are narrower.
Indices are in elements of contiguous arrays. As in all compiled code they are checked only with
``NUMBA_BOUNDSCHECK=1``.
"""

import operator
from collections.abc import Callable
from inspect import Signature, signature
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic as _numba_intrinsic
from numba.extending import overload

from esnlm.kernels.llvm_vectors import LanesType, Memory, called, shuffled, transposed

# Seen by type checkers as what compiled code calls, without the typing context.
intrinsic: Any = _numba_intrinsic


@intrinsic
def load(context: Any, array: Any, index: Any) -> Any:
    """Return lanes at ``array[index:]``."""
    lanes = LanesType(array.dtype)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return Memory(context, builder, array, arguments[0]).load(arguments[1], lanes)

    return lanes(array, types.intp), generate


@intrinsic
def store(context: Any, array: Any, index: Any, value: Any) -> Any:
    """Write lanes to ``array[index:]``."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        Memory(context, builder, array, arguments[0]).store(arguments[1], arguments[2], value)
        return context.get_dummy_value()

    return types.void(array, types.intp, value), generate


@intrinsic
def splat(context: Any, value: Any) -> Any:
    """Return lanes that all hold one number."""
    lanes = LanesType(value)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        none, first = ir.Constant(lanes.vector, ir.Undefined), ir.Constant(ir.IntType(32), 0)
        single = builder.insert_element(none, arguments[0], first)
        return shuffled(builder, single, none, [0] * lanes.count)

    return lanes(value), generate


def _elementwise(build: Callable[..., Any]) -> Any:
    """Return a compiled function of lanes of one type, as ``build`` makes it in LLVM."""

    def apply(context: Any, *lanes: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return build(builder, lanes[0], *arguments)

        return lanes[0](*lanes), generate

    function: Any = apply
    function.__name__, function.__doc__ = build.__name__, build.__doc__
    # numba binds arguments by name and knows no *lanes.
    function.__signature__ = Signature([*signature(build).parameters.values()][1:])
    return intrinsic(function)


@_elementwise
def fma(builder: Any, lanes: LanesType, a: Any, b: Any, c: Any) -> Any:
    """Return ``a * b + c``, rounded once where the processor can."""
    return called(builder, "fmuladd", lanes, [a, b, c])


@_elementwise
def smaller(builder: Any, lanes: LanesType, a: Any, b: Any) -> Any:
    """Return, elementwise, ``a if a < b else b``."""
    return builder.select(builder.fcmp_ordered("<", a, b), a, b)


@_elementwise
def larger(builder: Any, lanes: LanesType, a: Any, b: Any) -> Any:
    """Return, elementwise, ``a if a > b else b``."""
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


@_elementwise
def where_smaller(builder: Any, lanes: LanesType, a: Any, b: Any, then: Any, other: Any) -> Any:
    """Return, elementwise, ``then if a < b else other``."""
    return builder.select(builder.fcmp_ordered("<", a, b), then, other)


@_elementwise
def magnitude(builder: Any, lanes: LanesType, a: Any) -> Any:
    """Return the elementwise absolute value."""
    return called(builder, "fabs", lanes, [a])


@_elementwise
def nearest(builder: Any, lanes: LanesType, a: Any) -> Any:
    """Return the elementwise nearest whole number, halves to even."""
    return called(builder, "rint", lanes, [a])


@_elementwise
def power_of_two(builder: Any, lanes: LanesType, exponent: Any) -> Any:
    """Return ``2 ** exponent`` for float64 lanes of whole numbers from -1022 to 1023."""
    wide = ir.VectorType(ir.IntType(64), lanes.count)
    biased = builder.add(builder.fptosi(exponent, wide), ir.Constant(wide, [1023] * lanes.count))
    bits = builder.shl(biased, ir.Constant(wide, [52] * lanes.count))
    return builder.bitcast(bits, lanes.vector)


@intrinsic
def load_each(context: Any, array: Any, index: Any, stride: Any, like: Any) -> Any:
    """Return a tuple of lanes as long as ``like``, from ``array[index:]`` on, a stride apart."""
    lanes = LanesType(array.dtype)
    result = types.UniTuple(lanes, len(like))

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        memory, position = Memory(context, builder, array, arguments[0]), arguments[1]
        loaded = []
        for _ in range(len(like)):
            loaded.append(memory.load(position, lanes))
            position = builder.add(position, arguments[2])
        return context.make_tuple(builder, result, loaded)

    return result(array, types.intp, types.intp, like), generate


@intrinsic
def store_each(context: Any, array: Any, index: Any, stride: Any, values: Any) -> Any:
    """Write a tuple of lanes where ``load_each`` reads it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        memory, position = Memory(context, builder, array, arguments[0]), arguments[1]
        for value in cgutils.unpack_tuple(builder, arguments[3]):
            memory.store(position, value, values.dtype)
            position = builder.add(position, arguments[2])
        return context.get_dummy_value()

    return types.void(array, types.intp, types.intp, values), generate


@intrinsic
def fma_each(context: Any, weights: Any, array: Any, index: Any, stride: Any, sums: Any) -> Any:
    """Return ``sums`` of several streams plus a tuple of n weights times what each stream holds.

    Lanes ``[s * n + u]`` of sums get ``weights[u]`` times those at
    ``array[index + s * stride + u * count:]``.
    """
    lanes, n_weights = sums.dtype, len(weights)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        """Emit a load and a fused multiply-add for each weight of each stream."""
        factors, source, start, pitch, totals = arguments
        memory = Memory(context, builder, array, source)
        factors = cgutils.unpack_tuple(builder, factors)
        totals = cgutils.unpack_tuple(builder, totals)
        results = []
        for s in range(len(sums) // n_weights):
            for u, factor in enumerate(factors):
                place = builder.add(start, ir.Constant(start.type, u * lanes.count))
                vector = memory.load(place, lanes)
                operands = [factor, vector, totals[s * n_weights + u]]
                results.append(called(builder, "fmuladd", lanes, operands))
            start = builder.add(start, pitch)
        return context.make_tuple(builder, sums, results)

    return sums(weights, array, types.intp, types.intp, sums), generate


@intrinsic
def transpose_rows(
    context: Any, table: Any, rows: Any, first: Any, column: Any, out: Any, index: Any, stride: Any
) -> Any:
    """Set ``out[index + u * stride + s] = table[rows[first + s], column + u]``, a square.

    table is two-dimensional and contiguous, rows are intp.
    """
    lanes = LanesType(table.dtype)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        """Emit loads of rows of the table, a transposition of lanes, and stores."""
        source, numbers, first, unit, target, position, pitch = arguments
        source = Memory(context, builder, table, source)
        numbers = Memory(context, builder, rows, numbers)
        target = Memory(context, builder, out, target)
        square = []
        for s in range(lanes.count):
            row = numbers.element(builder.add(first, ir.Constant(first.type, s)))
            start = builder.add(builder.mul(row, source.width), unit)
            square.append(source.load(start, lanes))
        for vector in transposed(builder, square):
            target.store(position, vector, lanes)
            position = builder.add(position, pitch)
        return context.get_dummy_value()

    integers = types.intp, types.intp
    return types.void(table, rows, *integers, out, *integers), generate


def _define(symbol: Any, instruction: str) -> None:
    """Give lanes an arithmetic operator."""

    @_elementwise
    def apply(builder: Any, lanes: LanesType, a: Any, b: Any) -> Any:
        return getattr(builder, instruction)(a, b)

    @overload(symbol, inline="always")
    def typed(a: Any, b: Any) -> Any:
        def call(a: Any, b: Any) -> Any:
            return apply(a, b)

        return call if isinstance(a, LanesType) and isinstance(b, LanesType) else None


_define(operator.add, "fadd")
_define(operator.sub, "fsub")
_define(operator.mul, "fmul")
_define(operator.truediv, "fdiv")
