"""File -> graph: external data, opset normalising, shapes, storage types, names."""

from Deeploy.frontend.binding import bind_state
from Deeploy.frontend.fixtures import load_inputs, load_outputs
from Deeploy.frontend.loader import load
from Deeploy.frontend.model import Model, infer, node_view
from Deeploy.frontend.names import c_names

__all__ = ["Model", "bind_state", "c_names", "infer", "load", "load_inputs", "load_outputs", "node_view"]
