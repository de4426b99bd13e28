"""The recount of emitted files, the byte report, and what they do about injected faults."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from Deeploy.emit import read_manifest
from Deeploy.errors import DefectError
from Deeploy.program.program import NotShared, Reader
from Deeploy.program.tensor import Level
from Deeploy.report.l3 import Figures, level_reports
from Deeploy.report.recount import Count, recount
from Deeploy.report.tables import project_text, table
from DeeployTest.emit_examples import example, naive_plan, write

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
    assert [(n.tensor, n.twin, n.reason) for n in reports["l2"].not_shared][1:] == [
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
