"""Vectors of one cache line inside compiled functions: 16 float32 or 8 float64.

numba's loops leave it to LLVM whether a loop becomes vector code; here a value of type ``Lanes`` is
an LLVM vector, so sums stay in registers. LLVM splits it where the processor's are narrower.
Indices are in elements of contiguous arrays. As in all compiled code they are checked only where it
was compiled with ``NUMBA_BOUNDSCHECK=1``, which wants a ``NUMBA_CACHE_DIR`` of its own.
"""

import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic as _numba_intrinsic
from numba.extending import models, overload, register_model

# Seen by type checkers as what compiled code calls, without the typing context.
intrinsic: Any = _numba_intrinsic
LINE_BYTES = 64
_INT32 = ir.IntType(32)
_ELEMENTS = {types.float32: ir.FloatType(), types.float64: ir.DoubleType()}


class LanesType(types.Type):
    """numba's type of a vector of one cache line of ``dtype``."""

    def __init__(self, dtype: types.Float) -> None:
        self.dtype = dtype
        self.count = LINE_BYTES * 8 // dtype.bitwidth
        self.vector = ir.VectorType(_ELEMENTS[dtype], self.count)
        super().__init__(name=f"Lanes({dtype})")


@register_model(LanesType)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, lanes: LanesType) -> None:
        super().__init__(manager, lanes, lanes.vector)


@intrinsic
def load(context: Any, array: Any, index: Any) -> Any:
    """Lanes at ``array[index:]``."""
    lanes = LanesType(array.dtype)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _Memory(context, builder, array, arguments[0]).load(arguments[1], lanes)

    return lanes(array, types.intp), generate


@intrinsic
def store(context: Any, array: Any, index: Any, value: Any) -> Any:
    """Write lanes to ``array[index:]``."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _Memory(context, builder, array, arguments[0]).store(arguments[1], arguments[2], value)
        return context.get_dummy_value()

    return types.void(array, types.intp, value), generate


@intrinsic
def splat(context: Any, value: Any) -> Any:
    """Lanes that all hold one number."""
    lanes = LanesType(value)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _splat(builder, arguments[0], lanes)

    return lanes(value), generate


@intrinsic
def fma(context: Any, a: Any, b: Any, c: Any) -> Any:
    """``a * b + c``, rounded once where the processor can."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _call(builder, "fmuladd", a, arguments)

    return a(a, a, a), generate


@intrinsic
def smaller(context: Any, a: Any, b: Any) -> Any:
    """Elementwise ``a if a < b else b``."""
    return a(a, a), _choice("<", a)


@intrinsic
def larger(context: Any, a: Any, b: Any) -> Any:
    """Elementwise ``a if a > b else b``."""
    return a(a, a), _choice(">", a)


@intrinsic
def where_smaller(context: Any, a: Any, b: Any, then: Any, otherwise: Any) -> Any:
    """Elementwise ``then if a < b else otherwise``."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        first, second, yes, no = arguments
        return builder.select(builder.fcmp_ordered("<", first, second), yes, no)

    return a(a, a, a, a), generate


@intrinsic
def magnitude(context: Any, a: Any) -> Any:
    """Elementwise absolute value."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _call(builder, "fabs", a, arguments)

    return a(a), generate


@intrinsic
def nearest(context: Any, a: Any) -> Any:
    """Elementwise nearest whole number, halves to even."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _call(builder, "rint", a, arguments)

    return a(a), generate


@intrinsic
def power_of_two(context: Any, exponent: Any) -> Any:
    """``2 ** exponent`` for float64 lanes of whole numbers from -1022 to 1023."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        wide = ir.VectorType(ir.IntType(64), exponent.count)
        whole = builder.fptosi(arguments[0], wide)
        biased = builder.add(whole, ir.Constant(wide, [1023] * exponent.count))
        bits = builder.shl(biased, ir.Constant(wide, [52] * exponent.count))
        return builder.bitcast(bits, exponent.vector)

    return exponent(exponent), generate


@intrinsic
def load_each(context: Any, array: Any, index: Any, stride: Any, like: Any) -> Any:
    """A tuple of lanes as long as ``like``: ``array[index:]``, ``array[index + stride:]`` ..."""
    lanes = LanesType(array.dtype)
    result = types.UniTuple(lanes, len(like))

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        memory, position = _Memory(context, builder, array, arguments[0]), arguments[1]
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
        memory, position = _Memory(context, builder, array, arguments[0]), arguments[1]
        for value in cgutils.unpack_tuple(builder, arguments[3]):
            memory.store(position, value, values.dtype)
            position = builder.add(position, arguments[2])
        return context.get_dummy_value()

    return types.void(array, types.intp, types.intp, values), generate


@intrinsic
def fma_each(context: Any, weight: Any, array: Any, index: Any, stride: Any, sums: Any) -> Any:
    """``sums`` plus ``weight`` times what ``load_each`` reads."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        factor, source, position, step, totals = arguments
        memory = _Memory(context, builder, array, source)
        made = []
        for total in cgutils.unpack_tuple(builder, totals):
            read = memory.load(position, weight)
            made.append(_fma(builder, factor, read, total, weight))
            position = builder.add(position, step)
        return context.make_tuple(builder, sums, made)

    return sums(weight, array, types.intp, types.intp, sums), generate


@intrinsic
def fma_grid(
    context: Any,
    weights: Any,
    first: Any,
    array: Any,
    index: Any,
    stride: Any,
    like: Any,
    sums: Any,
) -> Any:
    """Advance sums of several streams over several lanes of units.

    Lanes ``[s * n + u]`` of sums get ``weights[first + u * count:]`` times
    ``array[index + s * stride + u * count:]``, n lanes of units a stream being ``len(like)``.
    """
    lanes, n_units = sums.dtype, len(like)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        matrix, place, states, start, pitch, _, totals = arguments
        matrix = _Memory(context, builder, weights, matrix)
        states = _Memory(context, builder, array, states)
        steps = [ir.Constant(place.type, u * lanes.count) for u in range(n_units)]
        factors = [matrix.load(builder.add(place, step), lanes) for step in steps]
        totals = cgutils.unpack_tuple(builder, totals)
        made = []
        for s in range(len(sums) // n_units):
            for u in range(n_units):
                read = states.load(builder.add(start, steps[u]), lanes)
                made.append(_fma(builder, factors[u], read, totals[s * n_units + u], lanes))
            start = builder.add(start, pitch)
        return context.make_tuple(builder, sums, made)

    arguments = (weights, types.intp, array, types.intp, types.intp, like, sums)
    return sums(*arguments), generate


@intrinsic
def transpose_rows(
    context: Any, table: Any, rows: Any, first: Any, column: Any, out: Any, index: Any, stride: Any
) -> Any:
    """``out[index + u * stride + s] = table[rows[first + s], column + u]``, a square of lanes.

    table is two-dimensional and contiguous, rows are intp.
    """
    lanes = LanesType(table.dtype)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source, chosen, first, unit, target, position, pitch = arguments
        source = _Memory(context, builder, table, source)
        chosen = _Memory(context, builder, rows, chosen)
        target = _Memory(context, builder, out, target)
        square = []
        for s in range(lanes.count):
            row = chosen.element(builder.add(first, ir.Constant(first.type, s)))
            start = builder.add(builder.mul(row, source.width), unit)
            square.append(source.load(start, lanes))
        for vector in _transposed(builder, square):
            target.store(position, vector, lanes)
            position = builder.add(position, pitch)
        return context.get_dummy_value()

    integers = types.intp, types.intp
    return types.void(table, rows, *integers, out, *integers), generate


def _transposed(builder: Any, square: list[Any]) -> list[Any]:
    """Rows of a square as columns, by exchanging halves, quarters and so on."""
    count = len(square)
    step = count // 2
    while step:
        made = list(square)
        for r in range(count):
            if r & step:
                continue
            upper, lower = square[r], square[r + step]
            first = [c if not c & step else count + c - step for c in range(count)]
            second = [c + step if not c & step else count + c for c in range(count)]
            made[r] = _shuffle(builder, upper, lower, first)
            made[r + step] = _shuffle(builder, upper, lower, second)
        square = made
        step //= 2
    return square


def _shuffle(builder: Any, a: Any, b: Any, order: list[int]) -> Any:
    mask = ir.Constant(ir.VectorType(_INT32, len(order)), order)
    return builder.shuffle_vector(a, b, mask)


class _Memory:
    """Elements of a contiguous array argument in compiled code."""

    def __init__(self, context: Any, builder: Any, array: Any, value: Any) -> None:
        made = context.make_array(array)(context, builder, value)
        self._context, self._builder = context, builder
        self._data, self._n_items = made.data, made.nitems
        self.width = cgutils.unpack_tuple(builder, made.shape)[-1]

    def element(self, position: Any) -> Any:
        """The element at ``position``."""
        return self._builder.load(self._place(position, 1))

    def load(self, position: Any, lanes: LanesType) -> Any:
        """Lanes from ``position`` on."""
        loaded = self._builder.load(self._vector(position, lanes))
        loaded.align = lanes.dtype.bitwidth // 8
        return loaded

    def store(self, position: Any, value: Any, lanes: LanesType) -> None:
        """Write lanes from ``position`` on."""
        stored = self._builder.store(value, self._vector(position, lanes))
        stored.align = lanes.dtype.bitwidth // 8

    def _vector(self, position: Any, lanes: LanesType) -> Any:
        place = self._place(position, lanes.count)
        return self._builder.bitcast(place, lanes.vector.as_pointer())

    def _place(self, position: Any, count: int) -> Any:
        if self._context.enable_boundscheck:
            builder = self._builder
            last = builder.sub(self._n_items, ir.Constant(position.type, count))
            below = builder.icmp_signed("<", position, ir.Constant(position.type, 0))
            above = builder.icmp_signed(">", position, last)
            with builder.if_then(builder.or_(below, above), likely=False):
                message = f"{count} elements of compiled code reach out of their array"
                self._context.call_conv.return_user_exc(builder, IndexError, (message,))
        return self._builder.gep(self._data, [position])


def _splat(builder: Any, value: Any, lanes: LanesType) -> Any:
    none = ir.Constant(lanes.vector, ir.Undefined)
    single = builder.insert_element(none, value, ir.Constant(_INT32, 0))
    return _shuffle(builder, single, none, [0] * lanes.count)


def _fma(builder: Any, a: Any, b: Any, c: Any, lanes: LanesType) -> Any:
    return _call(builder, "fmuladd", lanes, [a, b, c])


def _call(builder: Any, name: str, lanes: LanesType, arguments: Any) -> Any:
    vector = lanes.vector
    kind = ir.FunctionType(vector, [vector] * len(arguments))
    full = f"llvm.{name}.v{lanes.count}f{lanes.dtype.bitwidth}"
    function = cgutils.get_or_insert_function(builder.module, kind, full)
    return builder.call(function, arguments)


def _choice(comparison: str, lanes: LanesType) -> Callable[..., Any]:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        a, b = arguments
        return builder.select(builder.fcmp_ordered(comparison, a, b), a, b)

    return generate


def _define(symbol: Any, instruction: str) -> None:
    """Give lanes an arithmetic operator."""

    @intrinsic
    def apply(context: Any, a: Any, b: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return getattr(builder, instruction)(*arguments)

        return a(a, b), generate

    @overload(symbol, inline="always")
    def typed(a: Any, b: Any) -> Any:
        def call(a: Any, b: Any) -> Any:
            return apply(a, b)

        return call if isinstance(a, LanesType) and isinstance(b, LanesType) else None


_define(operator.add, "fadd")
_define(operator.sub, "fsub")
_define(operator.mul, "fmul")
_define(operator.truediv, "fdiv")
