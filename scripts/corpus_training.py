#!/usr/bin/env python3
"""Runs the training graphs of the shared corpus: over their whole protocol on the host with all checks, or one step on the simulated chip.

On the host: the 12 training graphs with their optimizers and the 4 graphs that update by themselves, home L3 and as the planner chooses.
With --chip: cct, and resnet8_peft copied per reader, shared, and by default, home L3; what the chip allocates and loads must be what is
recounted from the emitted files. Anything wrong makes the script fail.

usage: corpus_training.py [--chip] [--only TEXT] [--checks none|lazy|eager|tsan|all]
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from Deeploy.compiler import Graph, Options
from Deeploy.errors import DeeployError
from Deeploy.simulate.run import RunOptions, RunResult, run

CORPUS = Path(__file__).resolve().parent.parent.parent / "shared/corpus"
ALONE = ("CCT_Train/CCT2_LP", "CCT_Train/CCT2_FT1", "CCT_Train/CCT2_LoRA2", "Transformer_Train")
COPIED: dict[str, Any] = {"expand_constants": True, "share": False}
SHARED: dict[str, Any] = {"expand_constants": True}


@dataclass(frozen=True)
class Job:
    name: str
    graphs: tuple[Graph, ...]
    options: Options
    run: RunOptions


def host_jobs(checks: str) -> list[Job]:
    jobs = []
    for folder in sorted((CORPUS / "training").iterdir()):
        graphs = tuple(Graph(folder / f"{folder.name}_{part}", part) for part in ("train", "optimizer"))
        jobs += [
            Job(f"{folder.name} home {home}", graphs, Options("gap9", home=home), RunOptions(checks=checks)) for home in ("L3", "auto")
        ]
    for name in ALONE:
        graphs = (Graph(CORPUS / "deeploy/Models" / name),)
        jobs.append(Job(name, graphs, Options("gap9", home="L3"), RunOptions(checks=checks, compare="all")))
    return jobs


def chip_jobs() -> list[Job]:
    settings = RunOptions(simulator="gvsoc", timeout=1800)
    jobs = []
    for name, label, changes in (
        ("resnet8_peft", "copied per reader", COPIED),
        ("resnet8_peft", "shared", SHARED),
        ("resnet8_peft", "default", {}),
        ("cct", "default", {}),
    ):
        graph = Graph(CORPUS / "training" / name / f"{name}_train")
        jobs.append(Job(f"{name}, {label}", (graph,), Options("gap9", home="L3", **changes), settings))
    return jobs


def fault(result: RunResult) -> str:
    """What is wrong with a run; "" if nothing is."""
    if not result.good:
        return "; ".join(str(o) for mode in result.modes for o in mode.outputs if o.errors) or "an operator is wrong"
    loaded, recount = result.modes[0].loaded, result.l3["recount"]
    if (loaded["allocations"], loaded["bytes"], loaded["file_bytes"]) != (recount["allocations"], recount["bytes"], recount["bytes"]):
        return f"allocated and loaded is {loaded}, recounted {recount}"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--chip", action="store_true")
    parser.add_argument("--only", default="", metavar="TEXT")
    parser.add_argument("--checks", default="all", choices=("none", "lazy", "eager", "tsan", "all"))
    args = parser.parse_args()
    if not CORPUS.is_dir():
        parser.error("../shared/corpus is absent")
    bad = 0
    for job in chip_jobs() if args.chip else host_jobs(args.checks):
        if args.only not in job.name:
            continue
        begin = time.monotonic()
        try:
            result = run(job.graphs, job.options, job.run)
            text = fault(result)
            stored = result.l3["stored"]
            cycles = f", {result.modes[0].cycles.total:,} cycles" if result.modes[0].cycles else ""
            state = (
                text or f"right; L3 {stored['bytes'] / 1024:.1f} KB in {stored['allocations']} allocations, {stored['files']} files{cycles}"
            )
        except DeeployError as error:
            text = state = f"FAILED: {error}"
        bad += bool(text)
        print(f"{job.name}: {state} ({time.monotonic() - begin:.0f} s)", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
