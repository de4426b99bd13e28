#!/usr/bin/env python3
"""Runs networks on the simulated chip with everything at home in L2 and in L3, and writes docs/cycles.md.

Every output is compared; a wrong result or a run that does not end well makes the script fail. Cycles are GVSoC's and the same on every
machine. Needs GVSoC and, for the networks of the corpus, ../shared/corpus.

usage: measure_cycles.py [--only TEXT] [--jobs N] [-o FILE]
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from Deeploy.compiler import Options
from Deeploy.errors import DeeployError, DoesNotFitError
from Deeploy.simulate.run import RunOptions, RunResult, run

ROOT = Path(__file__).resolve().parent.parent
MODELS = ROOT.parent / "shared/corpus/deeploy/Models"
OWN = ("quant_cnn", "attention")
CORPUS = (
    "MLPerf/AnomalyDetection",
    "MLPerf/KeywordSpotting",
    "MLPerf/ImageClassification",
    "miniMobileNet",
    "CNN_Linear1",
    "CNN_Linear2",
    "EEGFormer",
    "microLlama/INT8/microLlama8",
    "CCT/FP32/CCT_1_16_16_32",
    "CCT/FP32/CCT_1_16_16_64",
    "CCT/FP32/CCT_1_16_16_128",
    "CCT/FP32/CCT_1_32_32_8",
    "CCT/FP32/CCT_1_32_32_32",
)
TRAINING = ("mlp_accum", "dscnn", "resnet8_peft", "cct")
"""One step of each."""
PLATFORM = "gap9"
OPENING = """# Cycles on the simulated chip

Made by `scripts/measure_cycles.py`: every network on GVSoC's GAP9-sized target, 8 cores, double buffering, with everything at home in L2
and in L3. All results were compared with the stored goldens. The kernels are plain C; this is where things stand, not what the chip can do.
*compute*: the workers run a kernel; *fork/join*: what it takes to send them and to gather them; *wait L2*, *wait L3*: the controller waits
for a transfer; *control*: the controller's own work.
"""


@dataclass(frozen=True)
class Job:
    name: str
    folder: Path
    home: str


def measure(job: Job) -> tuple[Job, RunResult | None, str]:
    try:
        result = run(job.folder, Options(PLATFORM, home=job.home), RunOptions(simulator="gvsoc", timeout=1800))
        print(f"{job.name} home {job.home}: {'good' if result.good else 'WRONG'}", file=sys.stderr, flush=True)
        loaded, stored = result.modes[0].loaded, result.l3["recount"]
        if (loaded["allocations"], loaded["bytes"], loaded["file_bytes"]) != (stored["allocations"], stored["bytes"], stored["bytes"]):
            return job, result, f"the chip has allocated and loaded {loaded}, the project says {stored}"
        return job, result, "" if result.good else "values differ"
    except DoesNotFitError as error:
        return job, None, f"does not fit: {error.problems[0].what}"
    except DeeployError as error:
        return job, None, f"FAILED: {error}"


def network_rows(outcomes: list[tuple[Job, RunResult | None, str]]) -> list[str]:
    head = "| network | home | MACs | cycles | MAC/cycle | compute | fork/join | wait L2 | wait L3 | control |"
    rows = [head, "| --- | --- |" + " ---: |" * 8]
    for job, result, text in outcomes:
        if result is None or result.modes[0].cycles is None:
            rows.append(f"| {job.name} | {job.home} | {text} | | | | | | | |")
            continue
        m = result.modes[0].cycles.json()
        figures = [m[k] for k in ("macs", "total", "macs_per_cycle", "compute", "fork_join", "wait_l2", "wait_l3", "control")]
        cells = " | ".join(f"{v:,}" if isinstance(v, int) else str(v) for v in figures)
        rows.append(f"| {job.name} | {job.home} | {cells} |")
    return rows


def step_rows(result: RunResult) -> list[str]:
    rows = ["| step | operator | MACs | cycles | compute | fork/join | wait L2 | wait L3 | control |", "| ---: | --- |" + " ---: |" * 7]
    assert result.modes[0].cycles is not None
    for step in (s.json() for s in result.modes[0].cycles.steps):
        figures = " | ".join(f"{step[k]:,}" for k in ("macs", "cycles", "compute", "fork_join", "wait_l2", "wait_l3", "control"))
        rows.append(f"| {step['step']} | {step['operator']} | {figures} |")
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="", metavar="TEXT", help="networks whose name contains TEXT")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "docs/cycles.md")
    args = parser.parse_args()
    places = [(n, ROOT / "DeeployTest/networks" / n) for n in OWN]
    if MODELS.is_dir():
        places += [(n, MODELS / n) for n in CORPUS]
        places += [(f"training/{n}", MODELS.parent.parent / "training" / n / f"{n}_train") for n in TRAINING]
    jobs = [Job(n, p, home) for n, p in places if args.only in n for home in ("L2", "L3")]
    with ThreadPoolExecutor(args.jobs) as pool:
        outcomes = list(pool.map(measure, jobs))
    lines = [OPENING, "## Networks", "", *network_rows(outcomes)]
    for job, result, _ in outcomes:
        if result is not None and result.modes[0].cycles is not None:
            lines += ["", f"## {job.name}, home {job.home}", "", *step_rows(result)]
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text("\n".join(lines) + "\n")
    bad = [f"{job.name} home {job.home}: {text}" for job, result, text in outcomes if text and "does not fit" not in text]
    print("\n".join(bad) if bad else f"{len(outcomes)} runs, all right or refused for want of room; see {args.output.name}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
