"""Program and plan to a C project."""

from Deeploy.emit.emitter import EmitOptions, check_prefix, emit
from Deeploy.emit.manifest import Manifest, read_manifest
from Deeploy.emit.script import Call, Script

__all__ = ["Call", "EmitOptions", "Manifest", "Script", "check_prefix", "emit", "read_manifest"]
