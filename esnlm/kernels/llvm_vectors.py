"""LLVM vectors of one cache line: numba's type for them, and the code that `simd` generates."""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils, config
from numba.extending import models, register_model

if config.DISABLE_JIT:  # type: ignore[attr-defined]
    raise ImportError("reservoirs are compiled: unset NUMBA_DISABLE_JIT")

LINE_BYTES = 64
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


class Memory:
    """Elements of a contiguous array argument in compiled code."""

    def __init__(self, context: Any, builder: Any, array: Any, value: Any) -> None:
        parts = context.make_array(array)(context, builder, value)
        self._context, self._builder = context, builder
        self._data, self._n_items = parts.data, parts.nitems
        self.width = cgutils.unpack_tuple(builder, parts.shape)[-1]

    def element(self, position: Any) -> Any:
        """Return the element at ``position``."""
        return self._builder.load(self._place(position, 1))

    def load(self, position: Any, lanes: LanesType) -> Any:
        """Return lanes from ``position`` on."""
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


def transposed(builder: Any, square: list[Any]) -> list[Any]:
    """Return rows of a square as columns, by exchanging halves, quarters and so on."""
    count = len(square)
    step = count // 2
    while step:
        rows = list(square)
        for r in range(count):
            if r & step:
                continue
            upper, lower = square[r], square[r + step]
            first = [c if not c & step else count + c - step for c in range(count)]
            second = [c + step if not c & step else count + c for c in range(count)]
            rows[r] = shuffled(builder, upper, lower, first)
            rows[r + step] = shuffled(builder, upper, lower, second)
        square = rows
        step //= 2
    return square


def shuffled(builder: Any, a: Any, b: Any, order: list[int]) -> Any:
    """Return lanes of a, then of b, in another order."""
    mask = ir.Constant(ir.VectorType(ir.IntType(32), len(order)), order)
    return builder.shuffle_vector(a, b, mask)


def called(builder: Any, name: str, lanes: LanesType, arguments: Any) -> Any:
    """Call LLVM's function of that name on vectors."""
    vector = lanes.vector
    kind = ir.FunctionType(vector, [vector] * len(arguments))
    full = f"llvm.{name}.v{lanes.count}f{lanes.dtype.bitwidth}"
    function = cgutils.get_or_insert_function(builder.module, kind, full)
    return builder.call(function, arguments)
