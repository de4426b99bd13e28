"""Program and plan to a C project."""

from Deeploy.emit.emitter import EmitOptions, emit
from Deeploy.emit.manifest import Manifest, read_manifest

__all__ = ["EmitOptions", "Manifest", "emit", "read_manifest"]
