"""Program and plan to a C project."""

from Deeploy.emit.emitter import EmitOptions, check_prefix, emit
from Deeploy.emit.manifest import Manifest, read_manifest

__all__ = ["EmitOptions", "Manifest", "check_prefix", "emit", "read_manifest"]
