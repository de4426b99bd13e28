"""ONNX file -> graph, still in the source's form: unique names, topological order, constants as arrays."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_graphsurgeon as gs
from onnx import AttributeProto, TensorProto, helper

from Deeploy.errors import ModelError, Problem, UsageError
from Deeploy.frontend.names import NameSet
from Deeploy.frontend.tensors import TensorError, TensorReader, constant_attribute, tensor_problem

_AI_ONNX = ("", "ai.onnx")
_DEFAULT_OPSET = 13


@dataclass(frozen=True)
class Declared:
    """A graph input or output as the file declares it. dims: int, name, or None; None if the file declares no shape."""

    name: str
    elem_type: int
    dims: tuple[int | str | None, ...] | None


@dataclass
class Source:
    """A file, read.

    graph:       topologically ordered; its inputs have no dtype and shape yet.
    inputs, outputs: as declared, in the order of graph.inputs and graph.outputs.
    declared:    other tensors whose type the file states.
    overridable: names of initializers that are also graph inputs.
    problems:    everything that is wrong with the file.
    """

    graph: gs.Graph
    opset: int
    sha256: str
    inputs: list[Declared] = field(default_factory=list)
    outputs: list[Declared] = field(default_factory=list)
    declared: dict[str, Declared] = field(default_factory=dict)
    overridable: set[str] = field(default_factory=set)
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    names: NameSet = field(default_factory=NameSet)

    def input_keys(self) -> set[str]:
        """What options may name: inputs, symbolic dimensions, and INPUT:AXIS of each dimension."""
        keys = {declared.name for declared in self.inputs}
        for declared in self.inputs:
            for axis, dim in enumerate(declared.dims or ()):
                keys |= {f"{declared.name}:{axis}", *([dim] if isinstance(dim, str) else [])}
        return keys


def model_file(path: str | Path) -> tuple[Path, Path | None]:
    """The .onnx file of a model, and the folder of its fixtures if it is a folder. Raises UsageError."""
    path = Path(path)
    if path.is_dir():
        file = path / "network.onnx"
        if not file.is_file():
            raise UsageError(Problem(f"folder '{path}' has no network.onnx", remedy="give an .onnx file or a folder that has one"))
        return file, path
    if not path.exists():
        raise UsageError(Problem(f"there is no file or folder '{path}'"))
    return path, None


def read(path: Path) -> Source:
    """Reads an .onnx file. Raises UsageError if it cannot be opened, ModelError if it is not a valid model."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(Problem(f"'{path}' cannot be read", why=error.strerror or str(error))) from error
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
        valid = proto.HasField("graph") and proto.ir_version > 0
    except Exception as error:  # the protobuf runtimes raise different types
        raise ModelError(Problem(f"'{path.name}' is not an ONNX model, or it is truncated")) from error
    if not valid:
        raise ModelError(Problem(f"'{path.name}' is not an ONNX model, or it is truncated", why="it holds no graph"))
    if any(isinstance(text, bytes) for text in _texts(proto.graph)):  # how protobuf returns strings that are not UTF-8
        raise ModelError(Problem(f"'{path.name}' is damaged", why="it has names that are not UTF-8"))
    return _Importer(proto, TensorReader(path.parent, hashlib.sha256(data))).run()


def _texts(graph: Any) -> Iterator[str | bytes]:
    """Every name in the graph."""
    yield graph.name
    for node in graph.node:
        yield from (node.name, node.op_type, node.domain, *node.input, *node.output, *(a.name for a in node.attribute))
    for tensor in (*graph.initializer, *(a.t for node in graph.node for a in node.attribute if a.type == AttributeProto.TENSOR)):
        yield tensor.name
        yield from (text for entry in tensor.external_data for text in (entry.key, entry.value))
    for info in (*graph.input, *graph.output, *graph.value_info):
        yield info.name
        yield from (dim.dim_param for dim in info.type.tensor_type.shape.dim)


class _Importer:
    """Turns a ModelProto into a Source."""

    def __init__(self, proto: Any, reader: TensorReader) -> None:
        self.proto, self.graph, self.reader = proto, proto.graph, reader
        versions = [entry.version for entry in proto.opset_import if entry.domain in _AI_ONNX]
        self.source = Source(gs.Graph(), max(versions, default=_DEFAULT_OPSET), "")
        if not versions and any(node.domain in _AI_ONNX for node in self.graph.node):
            self.source.notes.append(f"the model names no ai.onnx opset: {_DEFAULT_OPSET} is assumed")
        self.initializers = {tensor.name: tensor for tensor in self.graph.initializer}
        self.tensors: dict[str, gs.Tensor] = {}
        self.node_names = NameSet({node.name for node in self.graph.node})
        self.named: set[str] = set()

    def run(self) -> Source:
        self._refuse_whole()
        self._declarations()
        nodes = self._order()
        self.source.names.used.update(name for node in nodes for name in (*node.input, *node.output))
        self.source.names.used.update(self.tensors)
        graph = self.source.graph
        graph.name, graph.opset = self.graph.name or "network", self.source.opset
        graph.nodes.extend(node for proto in nodes if (node := self._node(proto)) is not None)
        self._outputs()
        self.source.sha256 = self.reader.digest.hexdigest()
        self._note("constants that no node reads are left out", [f"'{name}'" for name in self.initializers if name not in self.tensors])
        self._note("constants stored as float32", self.reader.converted)
        return self.source

    def _note(self, text: str, items: list[str]) -> None:
        if items:
            self.source.notes.append(f"{text}: {', '.join(items[:8])}{', ...' if len(items) > 8 else ''}")

    def _refuse(self, what: str, why: str = "", remedy: str = "", node: Any = None, attribute: str = "") -> None:
        name, operator = ("", "") if node is None else (node.name, node.op_type)
        self.source.problems.append(Problem(what, why, remedy, node=name, operator=operator, attribute=attribute))

    def _refuse_whole(self) -> None:
        for sparse in self.graph.sparse_initializer:
            self._refuse(f"sparse constant '{sparse.values.name}' is not supported", remedy="store it as a dense initializer")
        if len(self.initializers) < len(self.graph.initializer):
            names = [tensor.name for tensor in self.graph.initializer]
            self._refuse(f"several constants are called '{next(n for n in names if names.count(n) > 1)}'")
        functions = {function.name for function in self.proto.functions}
        if functions & {node.op_type for node in self.graph.node}:
            self._refuse(
                f"local functions are not supported ({', '.join(sorted(functions))})",
                remedy="inline them (onnx.inliner.inline_local_functions)",
            )

    def _declare(self, info: Any, kind: str) -> Declared:
        which = info.type.WhichOneof("value")
        if which != "tensor_type":
            if kind and which is not None:
                self._refuse(f"{kind} '{info.name}' is a {which.removesuffix('_type').replace('_', ' ')}; only dense tensors are supported")
            elif kind == "input":
                self._refuse(f"input '{info.name}' declares no type")
            return Declared(info.name, TensorProto.UNDEFINED, None)
        tensor = info.type.tensor_type
        if not tensor.HasField("shape"):
            return Declared(info.name, tensor.elem_type, None)
        dims = tuple(d.dim_value if d.dim_value > 0 else d.dim_param or None for d in tensor.shape.dim)
        return Declared(info.name, tensor.elem_type, dims)

    def _declarations(self) -> None:
        seen: set[str] = set()
        for info in self.graph.input:
            if info.name in seen:
                self._refuse(f"two inputs are called '{info.name}'")
                continue
            seen.add(info.name)
            if info.name in self.initializers:
                if self.proto.ir_version >= 4:  # before, every initializer had to be listed as an input
                    self.source.overridable.add(info.name)
                continue
            declared = self._declare(info, "input")
            self.source.inputs.append(declared)
            tensor = gs.Variable(info.name)
            self.tensors[info.name] = tensor
            self.source.graph.inputs.append(tensor)
        for info in self.graph.value_info:
            self.source.declared[info.name] = self._declare(info, "")
        self.source.outputs = [self._declare(info, "output") for info in self.graph.output]
        self.source.declared.update((d.name, d) for d in self.source.outputs)
        overridable = [f"'{name}'" for name in sorted(self.source.overridable)]
        self._note("constants that are also inputs keep their default values and cannot be overridden", overridable)

    def _order(self) -> list[Any]:
        """Nodes in topological order, the file's order where it is one. Raises ModelError where there is none."""
        have = set(self.initializers) | set(self.tensors) | {sparse.values.name for sparse in self.graph.sparse_initializer} | {""}
        producers: dict[str, Any] = {}
        known = len(self.source.problems)
        for node in self.graph.node:
            for name in node.output:
                if name in have - {""} or name in producers:
                    self._refuse(f"tensor '{name}' is written twice", node=node)
                elif name:
                    producers[name] = node
        for node in self.graph.node:
            for name in node.input:
                if name not in have and name not in producers:
                    self._refuse(f"it reads '{name}', which nothing writes", node=node)
        if not all(info.name for info in (*self.graph.input, *self.graph.output)):
            self._refuse("an input or output of the graph has no name")
        for info in self.graph.output:
            if info.name not in have and info.name not in producers:
                self._refuse(f"nothing writes output '{info.name}'")
        if len(self.source.problems) > known:
            raise ModelError(*self.source.problems)
        return self._sorted(producers)

    def _sorted(self, producers: dict[str, Any]) -> list[Any]:
        """Depth first from every node in the file's order: a node moves only before the first that needs it."""
        done: set[int] = set()
        active: set[int] = set()
        result: list[Any] = []
        for root in self.graph.node:
            stack = [root]
            while stack:
                node = stack[-1]
                if id(node) in done:
                    stack.pop()
                    continue
                wanted = [producers[name] for name in node.input if name in producers]
                missing = [p for p in wanted if id(p) not in done]
                if not missing:
                    active.discard(id(node))
                    done.add(id(node))
                    result.append(node)
                    stack.pop()
                    continue
                active.add(id(node))
                if any(id(p) in active for p in missing):
                    for name in self._cycles(producers):
                        self._refuse(f"the graph has a cycle: {name}", node=node)
                    raise ModelError(*self.source.problems)
                stack.append(missing[0])
        return result

    def _cycles(self, producers: dict[str, Any]) -> list[str]:
        """One cycle of every knot of the graph, as the names of the tensors along it."""
        import networkx as nx  # only for this message: it is slow to import

        edges = nx.DiGraph()
        for node in self.graph.node:
            edges.add_edges_from((read, written) for read in node.input for written in node.output if read in producers)
        knots = [c for c in nx.strongly_connected_components(edges) if len(c) > 1 or any(edges.has_edge(t, t) for t in c)]
        found = [nx.find_cycle(edges.subgraph(sorted(knot))) for knot in sorted(knots, key=min)]
        return [" -> ".join(repr(edge[0]) for edge in [*cycle, cycle[0]]) for cycle in found]

    def _tensor(self, name: str, node: Any) -> gs.Tensor:
        if not name:
            return gs.Variable.empty()
        if name not in self.tensors:
            initializer = self.initializers.get(name)
            self.tensors[name] = gs.Variable(name) if initializer is None else self._constant(name, initializer, node)
        return self.tensors[name]

    def _constant(self, name: str, initializer: Any, node: Any) -> gs.Tensor:
        try:
            return gs.Constant(name, self.reader.array(initializer))
        except TensorError as error:
            self.source.problems.append(tensor_problem(name, error, node.name if node else "", node.op_type if node else ""))
            return gs.Variable(name)

    def _node(self, proto: Any) -> gs.Node | None:
        """The node; None for a Constant, which becomes a tensor."""
        if proto.op_type == "Constant" and proto.domain in _AI_ONNX and len(proto.attribute) == len(proto.output) == 1:
            name = proto.output[0]
            try:
                self.tensors[name] = gs.Constant(name, _frozen(constant_attribute(proto.attribute[0], self.reader)))
            except TensorError as error:
                self.source.problems.append(tensor_problem(name, error, proto.name, proto.op_type))
                self.tensors[name] = gs.Variable(name)
            return None
        name = self._node_name(proto)
        attributes = {a.name: value for a in proto.attribute if (value := self._attribute(proto, a)) is not None}
        inputs = [self._tensor(i, proto) for i in proto.input]
        outputs = [self._tensor(o, proto) for o in proto.output]
        domain = "" if proto.domain in _AI_ONNX else proto.domain
        return gs.Node(proto.op_type, name, attributes, inputs, outputs, domain=domain)

    def _node_name(self, proto: Any) -> str:
        """The node's own name for the first node that has it; a fresh one otherwise."""
        if proto.name and proto.name not in self.named:
            self.named.add(proto.name)
            return proto.name
        return self.node_names.fresh(proto.name or f"{proto.op_type}_{len(self.source.graph.nodes)}")

    def _attribute(self, node: Any, attribute: Any) -> Any:
        kind = attribute.type
        if kind == AttributeProto.TENSOR:
            try:
                return self.reader.array(attribute.t)
            except TensorError as error:
                self._refuse(f"the attribute's tensor cannot be used: {error}", node=node, attribute=attribute.name)
                return None
        if kind in (AttributeProto.GRAPH, AttributeProto.GRAPHS):
            self._refuse(
                "operators with a subgraph are not supported",
                remedy="export the model without control flow (loops unrolled, branches decided)",
                node=node,
                attribute=attribute.name,
            )
            return None
        if kind in (AttributeProto.INT, AttributeProto.INTS, AttributeProto.FLOAT, AttributeProto.FLOATS):
            value = helper.get_attribute_value(attribute)
            return list(value) if kind in (AttributeProto.INTS, AttributeProto.FLOATS) else value
        if kind == AttributeProto.STRING:
            return attribute.s.decode("utf-8", "replace")
        if kind == AttributeProto.STRINGS:
            return [s.decode("utf-8", "replace") for s in attribute.strings]
        text = AttributeProto.AttributeType.Name(kind).lower() if kind in AttributeProto.AttributeType.values() else str(kind)
        self._refuse(f"an attribute of type {text} is not supported", node=node, attribute=attribute.name)
        return None

    def _outputs(self) -> None:
        """Every output becomes a tensor of its own that a node writes: constants, inputs and repeated ones go through an Identity."""
        graph = self.source.graph
        inputs = {id(t) for t in graph.inputs}
        seen: set[int] = set()
        for declared in self.source.outputs:
            tensor = self._tensor(declared.name, None)
            if isinstance(tensor, gs.Constant) or id(tensor) in inputs or id(tensor) in seen:
                copy = gs.Variable(self.source.names.fresh(f"{declared.name}_out"))
                name = self.node_names.fresh(f"Identity_{copy.name}")
                graph.nodes.append(gs.Node("Identity", name, {}, [tensor], [copy]))
                tensor = copy
            seen.add(id(tensor))
            graph.outputs.append(tensor)


def _frozen(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array
