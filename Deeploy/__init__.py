"""A compiler from ONNX networks to C for GAP9 and PULP class microcontrollers."""

__version__ = "0.1.0"
