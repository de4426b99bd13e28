"""The recount of emitted files, the byte report, and what they do about injected faults."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from Deeploy.compiler import Graph, Options
from Deeploy.emit import read_manifest
from Deeploy.emit.manifest import NotSharedEntry
from Deeploy.errors import DefectError, ExitCode
from Deeploy.program.program import NotShared, Reader
from Deeploy.program.tensor import Level
from Deeploy.report.addresses import address_faults
from Deeploy.report.index import Index
from Deeploy.report.l3 import Figures, level_reports
from Deeploy.report.near_misses import STATE, NearMiss, near_misses
from Deeploy.report.recount import Count, recount
from Deeploy.report.tables import project_text, table
from Deeploy.stored import generate
from DeeployTest.emit_examples import example, naive_plan, stateful, write
from DeeployTest.support import NETWORKS, deeploy
from DeeployTest.two_programs import HOSTILE, two_programs

BYTES = 70 + 37 * 4


@pytest.fixture(scope="module")
def l3_project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = example()
    made.project.readers += [Reader("n", 1, "w1", 70, "a"), Reader("m", 1, "w1", 70, "a"), Reader("m", 2, "third", 148, "b")]
    folder = tmp_path_factory.mktemp("l3") / "project"
    write(made, naive_plan(made.program, Level.L3, {}, {}), folder)
    return folder


def test_at_home_in_l3(l3_project: Path) -> None:
    counted = recount(l3_project)
    assert counted.l3 == Count(allocations=2, files=4, bytes=BYTES, distinct_contents=4)
    assert counted.l2 == Count(0, 0, 0, 0)
    reports = level_reports(read_manifest(l3_project), l3_project)
    report = reports["l3"]
    assert report.replicated == Figures(3, 5, 288)
    assert report.stored == Figures(2, 4, BYTES)
    assert [(g.bytes, g.members) for g in report.groups] == [(70, ["onnx/w1", "onnx/w2"]), (148, ["onnx/v1", "onnx/v2"])]
    assert [(i.tensor, i.bytes) for i in report.immediates] == [("onnx/third", 148)]
    assert report.not_shared == [] and report.padding == 2
    assert set(report.json()) >= {"replicated", "stored", "recount", "groups", "not_shared"}
    assert reports["l2"].stored == Figures(0, 0, 0)


def test_at_home_in_l2(tmp_path: Path) -> None:
    made = example()
    write(made, naive_plan(made.program, Level.L2, {}, {}), tmp_path / "p")
    counted = recount(tmp_path / "p")
    assert counted.l3 == Count(0, 2, 0, 2)
    assert counted.l2 == Count(2, 0, BYTES, 2)
    level_reports(read_manifest(tmp_path / "p"), tmp_path / "p")


def test_without_sharing(tmp_path: Path) -> None:
    made = example(shared=False)
    made.project.not_shared.append(NotShared("onnx/w1", "onnx/w2", "told so"))
    write(made, naive_plan(made.program, {"w1": Level.L3, "w2": Level.L3}, {}, {}), tmp_path / "p", share=False)
    reports = level_reports(read_manifest(tmp_path / "p"), tmp_path / "p")
    assert reports["l3"].recount == Count(2, 4, 140, 3)
    assert reports["l2"].recount == Count(2, 0, 2 * 148, 1)
    assert [n.reason for n in reports["l3"].not_shared] == ["told so"]
    assert [(n.tensor, n.twin, n.reason) for n in reports["l2"].not_shared] == [
        ("onnx/v2", "onnx/v1", "sharing was switched off"),
    ]


def _edit(old: str, new: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        text = (folder / "Network.c").read_text()
        assert old in text
        (folder / "Network.c").write_text(text.replace(old, new, 1))

    return change


def _hex(name: str, content: bytes | None) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = next((folder / "hex").glob(f"{name}*")) if name else folder / "hex" / "extra.hex"
        if content is None:
            path.unlink()
        else:
            path.write_bytes(content)

    return change


FAULTS = {
    "extra malloc": _edit("  t_w1 = cl_ram_malloc(70u);", "  t_w2 = cl_ram_malloc(70u);\n  t_w1 = cl_ram_malloc(70u);"),
    "anonymous malloc": _edit("  t_w1 = cl_ram_malloc(70u);", "  (void)cl_ram_malloc(70u);\n  t_w1 = cl_ram_malloc(70u);"),
    "larger malloc": _edit("cl_ram_malloc(70u)", "cl_ram_malloc(72u)"),
    "both sizes wrong": lambda folder: (
        _edit("cl_ram_malloc(70u)", "cl_ram_malloc(72u)")(folder),
        _edit('.hex", 70u)', '.hex", 72u)')(folder),
        _hex("w1", bytes(72))(folder),
    ),
    "second malloc and load": lambda folder: _edit(
        "  t_w2 = t_w1;", '  t_w2 = cl_ram_malloc(70u);\n  if (load_file_to_ram(t_w2, "w1_4efbc1eb.hex", 70u)) return 2;'
    )(folder),
    "missing file": _hex("w1", None),
    "short file": _hex("w1", bytes(69)),
    "missing fixture": _hex("input_x", None),
    "extra file": _hex("", b"x"),
    "array in L2": _edit("static struct {", "static const DP_ALIGN(4) uint8_t s_z[2] = {\n  1,2\n};\nstatic struct {"),
    "array of another length": _edit("static struct {", "static const DP_ALIGN(4) uint8_t s_z[3] = {\n  1,2\n};\nstatic struct {"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_noticed(l3_project: Path, tmp_path: Path, fault: str) -> None:
    folder = tmp_path / "p"
    shutil.copytree(l3_project, folder)
    level_reports(read_manifest(folder), folder)
    FAULTS[fault](folder)
    with pytest.raises(DefectError):
        level_reports(read_manifest(folder), folder)


def test_names_in_comments_and_strings_are_not_counted(l3_project: Path, tmp_path: Path) -> None:
    folder = tmp_path / "p"
    shutil.copytree(l3_project, folder)
    text = (folder / "Network.c").read_text()
    text += '// cl_ram_malloc(5u)\n/* t_q = cl_ram_malloc(1u);\n load_file_to_ram */\nstatic const char *s = "\\"cl_ram_malloc(3u) /*";\n'
    (folder / "Network.c").write_text(text)
    assert recount(folder) == recount(l3_project)


def test_text(l3_project: Path) -> None:
    manifest = read_manifest(l3_project)
    text = project_text(manifest, level_reports(manifest, l3_project))
    assert "MatMul" in text and "int32 13x7" in text
    assert "a copy per reader" in text and "onnx/w1, onnx/w2" in text and "0.3" in text
    assert table(("a", "b"), [("long", 1)]) == "a     b\n----  -\nlong  1"


# ---- several programs, and state ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {home: two_programs(tmp_path_factory.mktemp(home), home) for home in ("L2", "L3")}


W, V, C, START, HEAD = 192, 192, 144, 192, 72
"""Bytes of the storages of the two programs."""


def test_two_programs_in_l3(two: dict[str, Path]) -> None:
    """w and v are state, start has their bytes and its file; common is one storage of both programs."""
    counted = recount(two["L3"])
    assert counted.l3 == Count(5, 3, W + V + C + START + HEAD, 3) and counted.l2 == Count(0, 0, 0, 0)
    report = level_reports(read_manifest(two["L3"]), two["L3"])["l3"]
    assert report.replicated == Figures(11, 11, 6 * W + 4 * C + HEAD)
    train, infer = report.programs
    assert (train.name, train.replicated, train.stored) == ("train", Figures(8, 8, 5 * W + 2 * C + HEAD), report.stored)
    assert (infer.name, infer.replicated, infer.stored) == ("infer", Figures(3, 3, W + 2 * C), Figures(2, 2, W + C))
    assert [(g.bytes, len(g.members)) for g in report.groups] == [(C, 4)]
    assert set(report.json()["programs"][0]) == {"name", "replicated", "stored"}


def test_two_programs_in_l2(two: dict[str, Path]) -> None:
    counted = recount(two["L2"])
    assert counted.l3 == Count(0, 1, 0, 1)
    assert counted.l2 == Count(5, 1, W + V + C + START + HEAD, 3)
    reports = level_reports(read_manifest(two["L2"]), two["L2"])
    assert [p.stored for p in reports["l2"].programs] == [Figures(5, 1, W + V + C + START + HEAD), Figures(2, 1, W + C)]
    assert [p.stored for p in reports["l3"].programs] == [Figures(0, 1, 0), Figures(0, 1, 0)]


def test_every_near_miss_once_with_its_reason(two: dict[str, Path], tmp_path: Path) -> None:
    """The beginning of a content is no near miss; every other storage with the bytes of w is, once, also where nothing is shared."""
    start = f"start (train: MatMul e {HOSTILE}:1)"
    expected = [NearMiss("v", "w", STATE), NearMiss(start, "w", f"'w' is state: {STATE}")]
    for home, folder in two.items():
        reports = level_reports(read_manifest(folder), folder)
        assert reports[home.lower()].not_shared == expected
        assert reports["l2" if home == "L3" else "l3"].not_shared == []
    alone = two_programs(tmp_path, share=False)
    found = level_reports(read_manifest(alone), alone)["l3"].not_shared
    assert found[:2] == expected and [n.reason for n in found[2:]] == ["sharing was switched off"] * 3
    assert len({n.tensor for n in found}) == len(found) and len({n.twin for n in found[2:]}) == 1


def test_near_misses_that_sharing_has_told_are_not_told_again(l3_project: Path) -> None:
    """Two names for one pair of storages are one near miss; a twin at home at another level is one as well."""
    manifest = read_manifest(l3_project)
    first, *_ = [s for s in manifest.storages if s.name == "w1"]
    twin = replace(first, name="twin", members=["twin"], home="L2")
    (program,) = manifest.programs
    (w1,) = [t for t in program.tensors if t.name == "w1"]
    program = replace(program, tensors=[*program.tensors, replace(w1, name="twin", source="onnx/twin", storage="twin")])
    changed = replace(manifest, programs=[program], storages=[*manifest.storages, twin])
    assert near_misses(Index(changed)) == {"L2": [NearMiss("onnx/twin", "onnx/w1", "sharing was switched off")]}
    told = [_told("onnx/twin", name) for name in ("onnx/w1", "onnx/w2")] + [_told("onnx/w2", "onnx/twin")]
    assert near_misses(Index(replace(changed, not_shared=told))) == {"L2": [NearMiss("onnx/twin", "onnx/w1", "told so")]}


def _told(tensor: str, twin: str) -> NotSharedEntry:
    return NotSharedEntry(tensor, twin, "told so")


def _line(old: str, new: str = "") -> Callable[[Path], None]:
    """Replaces a whole line."""
    return _edit(f"\n{old}\n", f"\n{new}\n")


def _swapped(one: str, two_: str) -> Callable[[Path], None]:
    """Lets two texts of Network.c change places."""

    def change(folder: Path) -> None:
        text = (folder / "Network.c").read_text()
        assert one in text and two_ in text
        (folder / "Network.c").write_text(text.replace(one, "\0").replace(two_, one).replace("\0", two_))

    return change


COMMON = "t_train_script_alert_c_script_amp_0"
EVERYWHERE = {
    "alias of another storage": _line(f"  t_infer_same__1 = {COMMON};", "  t_infer_same__1 = t_train_w;"),
    "alias moved to another group": lambda folder: (
        _line("  t_infer_w = t_train_w;")(folder),
        _line("  t_train_v_updated = t_train_v;", "  t_train_v_updated = t_train_v;\n  t_infer_w = t_train_v;")(folder),
    ),
    "twins of state change places": _swapped("t_train_w_updated", "t_train_v_updated"),
    "alias removed": _line("  t_infer_w = t_train_w;"),
    "alias twice": _line("  t_infer_w = t_train_w;", "  t_infer_w = t_train_w;\n  t_infer_w = t_train_w;"),
    "alias changed afterwards": _line("  t_infer_w = t_train_w;", "  t_infer_w = t_train_w;\n  t_infer_w += 4u;"),
    "pointer to something else": _line("  t_infer_w = t_train_w;", "  t_infer_w = t_train_w + 4u;"),
    "pointer of no tensor": _line("  t_infer_w = t_train_w;", "  t_infer_w = t_train_w;\n  t_other = t_train_w;"),
    "in-place alias removed": _line("  t_infer_r = t_infer_b;"),
    "in-place alias of another buffer": _line("  t_infer_r = t_infer_b;", "  t_infer_r = t_infer_a;"),
    "buffers change places": _swapped("t_train_a = (uintptr_t)", "t_train_b = (uintptr_t)"),
    "offset in the arena": _edit(", 96u, 96u);", ", 100u, 96u);"),
    "size in the arena": _edit(", 96u, 96u);", ", 96u, 92u);"),
    "content of a file": _hex("train_w", bytes(W)),
    "missing file": _hex("train_w", None),
    "extra file": _hex("", b"x"),
}
ONLY = {
    "L3": {
        "allocation removed": _line("  t_train_v = cl_ram_malloc(192u);"),
        "allocation and load of a twin removed": lambda folder: (
            _line("  t_train_v = cl_ram_malloc(192u);", "  t_train_v = t_train_w;")(folder),
            _line('  if (load_file_to_ram(t_train_v, "train_w_189893c0.hex", 192u)) return Deeploy_NO_FILE;')(folder),
        ),
        "size of an allocation": _edit("t_train_v = cl_ram_malloc(192u)", "t_train_v = cl_ram_malloc(196u)"),
        "load removed": _line('  if (load_file_to_ram(t_train_head, "train_head_200f82fa.hex", 72u)) return Deeploy_NO_FILE;'),
        "free removed": _line("  if (t_train_v) cl_ram_free(t_train_v, 192u);"),
        "freed twice": _edit("cl_ram_free(t_train_v, 192u);", "cl_ram_free(t_train_v, 192u), cl_ram_free(t_train_v, 192u);"),
        "file of another content": _edit('(t_train_head, "train_head_200f82fa.hex", 72u)', '(t_train_head, "train_w_189893c0.hex", 72u)'),
    },
    "L2": {
        "state array removed": _line("static DP_ALIGN(4) uint8_t s_train_v[192];"),
        "state loaded into another array": _edit("dp_load_file_to_l2(s_train_v,", "dp_load_file_to_l2(s_train_w,"),
        "state arrays change places": _swapped("(uintptr_t)s_train_v;", "(uintptr_t)s_train_w;"),
        "constant instead of state": _edit("(uintptr_t)s_train_w;", "(uintptr_t)s_train_start;"),
        "size of a state array": _edit("uint8_t s_train_v[192];", "uint8_t s_train_v[196];"),
        "size of a load": _edit('(s_train_v, "train_w_189893c0.hex", 192u)', '(s_train_v, "train_w_189893c0.hex", 96u)'),
        "a number of a constant": _edit("0x40000000u", "0x40000001u"),
    },
}


@pytest.mark.parametrize("home,fault", [(h, f) for h in ("L2", "L3") for f in [*EVERYWHERE, *ONLY[h]]])
def test_faults_of_two_programs_are_noticed(two: dict[str, Path], tmp_path: Path, home: str, fault: str) -> None:
    folder = tmp_path / "p"
    shutil.copytree(two[home], folder)
    level_reports(read_manifest(folder), folder)
    (EVERYWHERE | ONLY[home])[fault](folder)
    with pytest.raises(DefectError):
        level_reports(read_manifest(folder), folder)


def test_a_fault_ends_the_command_with_70(two: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "p"
    shutil.copytree(two["L3"], folder)
    assert deeploy("report", folder).returncode == ExitCode.GOOD
    EVERYWHERE["alias of another storage"](folder)
    done = deeploy("report", folder, "--html", tmp_path / "report.html")
    assert done.returncode == ExitCode.DEFECT and "t_infer_same__1" in done.stderr
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize("level", [Level.L2, Level.L3])
def test_addresses_of_hand_made_projects(tmp_path: Path, level: Level) -> None:
    """Also without the planner: plain constants and state; every pointer is understood."""
    for name, made in (("plain", example()), ("state", stateful())):
        write(made, naive_plan(made.program, level, {}, {}), tmp_path / name)
        manifest, counted = read_manifest(tmp_path / name), recount(tmp_path / name)
        assert address_faults(manifest, counted) == []
        assert {p for a in counted.addresses for p in a.pointers} == {
            f"t_{t.name}" for p in manifest.programs for t in p.tensors if t.literal is None
        }


@pytest.mark.parametrize("where", ["Network.c", "hex"])
def test_files_of_one_size_that_change_places_are_noticed(tmp_path: Path, where: str) -> None:
    """The tables mul and add of 64 bytes each: every figure stays the same."""
    folder = tmp_path / "p"
    generate([Graph(NETWORKS / "quant_cnn")], Options("gap9", home="L3"), folder)
    before = recount(folder)
    mul, add = (next(s.file for s in read_manifest(folder).storages if s.size == 64 and s.name.startswith(n)) for n in ("mul", "add"))
    if where == "hex":
        paths = [folder / "hex" / name for name in (mul, add)]
        contents = [p.read_bytes() for p in paths]
        for path, content in zip(paths, reversed(contents), strict=True):
            path.write_bytes(content)
    else:
        _swapped(f'"{mul}"', f'"{add}"')(folder)
    assert (recount(folder).l3, recount(folder).l2) == (before.l3, before.l2)
    with pytest.raises(DefectError, match="content is"):
        level_reports(read_manifest(folder), folder)


def test_a_fixture_of_another_size_is_noticed(l3_project: Path, tmp_path: Path) -> None:
    folder = tmp_path / "p"
    shutil.copytree(l3_project, folder)
    _hex("input_x", bytes(3))(folder)
    with pytest.raises(DefectError, match="3 bytes and not 130"):
        level_reports(read_manifest(folder), folder)
