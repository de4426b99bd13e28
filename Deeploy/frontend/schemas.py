"""What ONNX says of its own operators: attributes and inputs that a node has and its operator does not."""

from __future__ import annotations

import onnx_graphsurgeon as gs
from onnx import defs

from Deeploy.errors import Problem
from Deeploy.operators import base


def check_nodes(graph: gs.Graph, opset: int) -> tuple[list[Problem], list[str]]:
    """The problems and the notes about nodes of ai.onnx, compared with the schemas of that opset. To be called before normalising.

    Surplus inputs are refused: they would be ignored. An unknown attribute is refused in a plain ONNX model. It is a note if another opset
    knows it, or in a file that also has operators of its own: tools that write such files annotate the nodes.
    """
    problems: list[Problem] = []
    unknown: list[Problem] = []
    schemas = {op: _schema(op, opset) for op in {node.op for node in graph.nodes}}
    plain = True
    for node in graph.nodes:
        schema = None if node.domain else schemas[node.op]
        if schema is None:
            plain = False
            continue
        if len(node.inputs) > schema.max_input:
            what = f"it has {len(node.inputs)} inputs, the operator takes at most {schema.max_input}"
            problems.append(Problem(what, why=f"so says ONNX opset {opset}", node=node.name, operator=node.op))
        operator = base.find(node.op, "")
        internal = {name for _, name in operator.static_inputs} if operator is not None else set()
        for name in node.attrs:
            if name not in schema.attributes and name not in internal:
                what = f"the operator has no such attribute in ONNX opset {opset}"
                unknown.append(Problem(what, remedy="remove it", node=node.name, operator=node.op, attribute=name))
    others = {(p.operator, p.attribute): _elsewhere(p.operator, p.attribute) for p in unknown}
    tolerated = [p for p in unknown if not plain or others[p.operator, p.attribute]]
    problems += [p for p in unknown if plain and not others[p.operator, p.attribute]]
    names = dict.fromkeys(f"'{p.attribute}' of {p.operator}" for p in tolerated)
    notes = [f"attributes that ONNX opset {opset} does not have: {', '.join(names)}"] if names else []
    return problems, notes


def _schema(op: str, opset: int) -> defs.OpSchema | None:
    try:
        return defs.get_schema(op, opset, "")
    except defs.SchemaError:
        return None


def _elsewhere(op: str, attribute: str) -> bool:
    """Whether some opset has the attribute."""
    versions = [s for s in defs.get_all_schemas_with_history() if s.name == op and s.domain == ""]
    return any(attribute in s.attributes for s in versions)
