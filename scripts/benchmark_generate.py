#!/usr/bin/env python3
"""CPU seconds of `deeploy generate` (imports included), and ratios against another command measured side by side.

Every network is generated `--repeat` times, the two commands taking turns; the least CPU time of each is taken, and the spread of our
own times is printed as the noise of the machine.

usage: benchmark_generate.py [--against "COMMAND {model} {output}"] [--repeat N] [--corpus DIR] [NETWORK ...]
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODELS = ROOT.parent / "shared/corpus/deeploy/Models"
NETWORKS = (
    "MLPerf/AnomalyDetection",
    "MLPerf/KeywordSpotting",
    "MLPerf/ImageClassification",
    "CCT/FP32/CCT_2_32_32_128",
    "microLlama/INT8/microLlama8",
)


def cpu_seconds(command: list[str]) -> float:
    """User and system time of a process and its children."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            output.seek(0)
            sys.exit(f"{shlex.join(command)} ended with {process.returncode}:\n{output.read().decode(errors='replace')[-2000:]}")
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("networks", nargs="*", default=NETWORKS)
    parser.add_argument("--against", metavar="COMMAND", help="another generator; {model} and {output} are replaced")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--models", type=Path, default=MODELS, metavar="DIR")
    parser.add_argument("--home", default="L3", choices=("auto", "L2", "L3"))
    args = parser.parse_args()
    head = f"{'network':34} {'CPU s':>7} {'noise':>7}"
    print(head + (f" {'other s':>8} {'ratio':>6}" if args.against else ""))
    with tempfile.TemporaryDirectory() as scratch:
        for network in args.networks:
            model = args.models / network
            ours, theirs = [], []
            for _ in range(args.repeat):
                command = [sys.executable, "-m", "Deeploy", "generate", str(model), "--platform", "gap9", "--home", args.home]
                ours.append(cpu_seconds([*command, "-o", f"{scratch}/ours"]))
                if args.against:
                    theirs.append(cpu_seconds(shlex.split(args.against.format(model=model, output=f"{scratch}/theirs"))))
            line = f"{network:34} {min(ours):7.2f} {(max(ours) - min(ours)) / min(ours):6.0%}"
            print(line + (f" {min(theirs):8.2f} {min(theirs) / min(ours):5.1f}x" if theirs else ""), flush=True)


if __name__ == "__main__":
    main()
