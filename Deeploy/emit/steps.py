"""Steps as the templates of Network.c need them: tables of axes, operands, calls and buffers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from Deeploy.emit import literals
from Deeploy.emit.layout import has_pointer, home, pointer
from Deeploy.errors import DefectError
from Deeploy.plan.result import StepPlan, TileBuffers
from Deeploy.program.step import Access, AxisKind, KernelCall, Operand
from Deeploy.program.tensor import ConstantBuffer, Level


class Tables:
    """The constant tables of a project by content: equal ones are one, under the name of the first, which alone is defined."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, str], str] = {}

    def define(self, ctype: str, name: str, initialiser: str) -> tuple[str, str]:
        """(name to use, definition; "" if it is there already). `ctype` ends in [] for an array."""
        known = self._names.setdefault((ctype, initialiser), name)
        if known != name:
            return known, ""
        plain, brackets = ctype.removesuffix("[]"), "[]" if ctype.endswith("[]") else ""
        return name, f"static const {plain} {name}{brackets} = {{{initialiser}}};\n"


@dataclass(frozen=True)
class OperandView:
    """An operand of a step. near: L1 tile buffers, far: L2 tile buffers (None: it is no operand of that loop)."""

    index: int
    table: str
    operand: Operand
    literal: bytes | None
    near: TileBuffers | None
    far: TileBuffers | None

    @property
    def loads(self) -> bool:
        return self.literal is None and self.operand.access is not Access.WRITE

    @property
    def stores(self) -> bool:
        return self.operand.access is not Access.READ

    @property
    def pointer(self) -> str:
        """The variable with the address of the operand's storage."""
        return pointer(self.operand.tensor)

    @property
    def offset(self) -> int:
        """Bytes from the beginning of its storage to the operand's first element."""
        return self.operand.tensor.offset + self.operand.offset * self.operand.tensor.dtype.size

    @property
    def comment(self) -> str:
        tensor = self.operand.tensor
        return literals.comment(f"{self.operand.access.value} {tensor.source} {tensor.dtype} {list(tensor.shape)}")

    @property
    def terms(self) -> list[tuple[int, int]]:
        return [t for d in self.operand.dims for t in d.terms]

    @property
    def dims(self) -> list[tuple[int, int, int, int, int, int]]:
        """size, stride, offset, window, first term, terms."""
        rows, first = [], 0
        for d in self.operand.dims:
            stride = 0 if self.literal is not None else d.stride
            rows.append((d.size, stride, d.offset, d.window, first, len(d.terms)))
            first += len(d.terms)
        return rows

    @property
    def axes_mask(self) -> int:
        return sum(1 << a for a in {a for a, _ in self.terms})


@dataclass(frozen=True)
class CallView:
    """A kernel call. constants: initialiser of its constant struct, "" if it has none."""

    symbol: str
    struct: str
    table: str
    constants: str
    axes: tuple[int, ...]
    operands: tuple[OperandView, ...]


@dataclass(frozen=True)
class StepView:
    """A step. outer_boxes: number of tiles of the outer loop."""

    index: int
    name: str
    plan: StepPlan
    operands: list[OperandView]
    calls: list[CallView]
    outer_boxes: int

    @property
    def near(self) -> list[OperandView]:
        return [o for o in self.operands if o.near is not None]

    @property
    def far(self) -> list[OperandView]:
        return [o for o in self.operands if o.far is not None]

    @property
    def axes(self) -> list[tuple[int, int, int, int]]:
        """size, outer, inner, reduced."""
        step = self.plan.step
        return [
            (a.size, o, i, int(a.kind is AxisKind.REDUCED)) for a, o, i in zip(step.axes, self.plan.outer, self.plan.inner, strict=True)
        ]

    @property
    def comment(self) -> str:
        return literals.comment(f"{self.plan.step.operator} {self.plan.step.node}")


def view_step(index: int, plan: StepPlan) -> StepView:
    """The view of step `index`. Raises DefectError for a plan that the loops of generated code cannot follow."""
    step = plan.step
    name = f"k{index}"
    operands = []
    for i, operand in enumerate(step.operands):
        tensor = operand.tensor
        literal = tensor.literal if isinstance(tensor, ConstantBuffer) else None
        if not has_pointer(tensor) and literal is None:
            literal = bytes(tensor.dtype.size)  # no element is ever read
        near = None if literal is not None else plan.l1[i]
        far = plan.l2[i] if literal is None and home(tensor.storage) is Level.L3 else None
        operands.append(OperandView(i, f"{name}_x{i}", operand, literal, near, far))
    view = StepView(index, name, plan, operands, [], _boxes(plan))
    view.calls.extend(_call(view, i, call) for i, call in enumerate(step.calls))
    _check(view)
    return view


def _call(view: StepView, index: int, call: KernelCall) -> CallView:
    struct = call.kernel.constant_struct
    table = f"{view.name}_cst{index}"
    operands = tuple(view.operands[o] for o in call.operands)
    return CallView(call.kernel.symbol, struct, table, literals.params(call.params) if struct else "", call.axes, operands)


def _boxes(plan: StepPlan) -> int:
    boxes = 1
    for axis, outer in zip(plan.step.axes, plan.outer, strict=True):
        boxes *= -(-axis.size // max(1, outer))
    return max(1, boxes)


def _check(view: StepView) -> None:
    step, plan = view.plan.step, view.plan
    faults = []
    for o in view.operands:
        if o.literal is None and o.near is None:
            faults.append(f"{o.operand.tensor.name} has no L1 buffer")
        if o.literal is None and home(o.operand.tensor.storage) is Level.L3 and o.far is None:
            faults.append(f"{o.operand.tensor.name} is at home in L3 and has no L2 buffer")
        for buffers in (o.near, o.far):
            if buffers is not None and buffers.copies not in (1, 2):
                faults.append(f"{o.operand.tensor.name} has {buffers.copies} copies of a tile buffer")
    reduced = [i for i, a in enumerate(step.axes) if a.kind is AxisKind.REDUCED]
    cut = any(plan.inner[i] < step.axes[i].size for i in reduced)
    if cut and (plan.accumulator is None or not all(c.kernel.splits_reduction for c in step.calls)):
        faults.append("a reduction is split without accumulators")
    if any(plan.outer[i] < step.axes[i].size for i in reduced):
        parallel = [i for i, a in enumerate(step.axes) if a.kind is AxisKind.PARALLEL]
        if any(plan.inner[i] < min(plan.outer[i], step.axes[i].size) for i in parallel):
            faults.append("a reduction is split in the outer loop and the inner loop cuts what the accumulators hold")
    if any(plan.inner[i] > plan.outer[i] for i in range(len(step.axes))):
        faults.append("an inner tile is larger than the outer one")
    if faults:
        raise DefectError(*(f"{step.name}: {fault}" for fault in faults))


def kernel_sources(plans: Sequence[StepPlan]) -> list[str]:
    """The files below Targets/kernels that the steps use, sorted."""
    return sorted({c.kernel.source for p in plans for c in p.step.calls})
