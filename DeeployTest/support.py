"""Paths and small helpers that several tests use."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from Deeploy.errors import ToolMissingError
from Deeploy.platform.reader import load
from Deeploy.simulate.chip import find_toolchain
from Deeploy.simulate.gvsoc import Gvsoc, find_gvsoc

ROOT = Path(__file__).resolve().parent.parent
NETWORKS = ROOT / "DeeployTest/networks"
CORPUS = ROOT.parent / "shared/corpus"
MODELS = CORPUS / "deeploy/Models"

needs_corpus = pytest.mark.skipif(not CORPUS.is_dir(), reason="the shared corpus is absent")


def deeploy(*arguments: object, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    """Runs the command line in a process of its own."""
    command = [sys.executable, "-m", "Deeploy", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=timeout)


def deeploy_json(*arguments: object) -> dict[str, Any]:
    """Runs a command that must succeed and returns its JSON object."""
    done = deeploy(*arguments, "--json")
    assert done.returncode == 0, done.stderr or done.stdout
    return json.loads(done.stdout)


def why_no_gvsoc(platform: str) -> str:
    """Why nothing can be built for that platform's chip and run on GVSoC; "" if it can. With DEEPLOY_REQUIRE_GVSOC that is an error."""
    try:
        find_gvsoc()
        find_toolchain()
        Gvsoc(load(platform))
    except ToolMissingError as error:
        if os.environ.get("DEEPLOY_REQUIRE_GVSOC"):
            raise
        return str(error)
    return ""
