"""The HTML report: one well-formed file that loads nothing, with one rectangle per storage at its place, whatever the names."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from itertools import combinations
from pathlib import Path

import pytest

from Deeploy.compiler import Graph, Options
from Deeploy.emit import Manifest, read_manifest
from Deeploy.errors import ExitCode
from Deeploy.report import html_of
from Deeploy.report.index import Index
from Deeploy.report.markup import Markup, element, visible
from Deeploy.report.pictures import Box, Picture, pictures
from Deeploy.report.svg import ARENA, LEFT, PLOT
from Deeploy.stored import generate
from DeeployTest.support import CORPUS, MODELS, NETWORKS, deeploy, needs_corpus
from DeeployTest.two_programs import COMMON, HOSTILE, WEIGHT, two_programs

VOID = {"meta", "br"}
SHOWN = visible(HOSTILE)


class Page(HTMLParser):
    """All elements with attributes, own text and parents; fails where the file is not well-formed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.stack: list[int] = []
        self.elements: list[tuple[str, dict[str, str], list[str], int]] = []
        self.feed(text)
        self.close()
        assert not self.stack, "an element is not closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs), f"an attribute of {tag} is there twice"
        self.elements.append((tag, {k: v or "" for k, v in attrs}, [], self.stack[-1] if self.stack else -1))
        if tag not in VOID:
            self.stack.append(len(self.elements) - 1)

    def handle_endtag(self, tag: str) -> None:
        assert self.stack and self.elements[self.stack.pop()][0] == tag, f"</{tag}> closes another element"

    def handle_data(self, data: str) -> None:
        if self.stack:
            self.elements[self.stack[-1]][2].append(data)

    def named(self, tag: str) -> Iterator[tuple[int, dict[str, str], str]]:
        return ((i, a, "".join(t)) for i, (name, a, t, _) in enumerate(self.elements) if name == tag)

    def title(self, number: int) -> str:
        """The hover text of an element."""
        return "".join("".join(t) for name, _, t, parent in self.elements if name == "title" and parent == number)

    def drawing(self, number: int) -> int:
        """The svg that an element is in."""
        while self.elements[number][0] != "svg":
            number = self.elements[number][3]
        return number


@pytest.fixture(scope="module")
def projects(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("projects")
    result = {f"two {home}": two_programs(folder / home, home) for home in ("L2", "L3")}
    result["alone"] = two_programs(folder / "alone", share=False)
    for home in ("L2", "L3"):
        result[f"quant_cnn {home}"] = folder / f"quant_cnn_{home}"
        generate([Graph(NETWORKS / "quant_cnn")], Options("gap9", home=home), result[f"quant_cnn {home}"])
    result["attention"] = folder / "attention"
    generate([Graph(NETWORKS / "attention")], Options("gap9", home="L3", l1=3000), result["attention"])
    return result


ALL = ["two L2", "two L3", "alone", "quant_cnn L2", "quant_cnn L3", "attention"]


def drawn(folder: Path) -> tuple[Manifest, Index, list[Picture]]:
    manifest = read_manifest(folder)
    index = Index(manifest)
    return manifest, index, [picture for program in manifest.programs for picture in pictures(index, program)]


# ---- the file -------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
def test_well_formed_and_alone(projects: dict[str, Path], name: str) -> None:
    text = html_of(projects[name])
    page = Page(text)
    tags = Counter(tag for tag, *_ in page.elements)
    assert not tags.keys() & {"script", "link", "img", "iframe", "object", "embed", "base", "image", "use", "foreignobject"}
    for tag, attributes, _, _ in page.elements:
        assert not attributes.keys() & {"src", "srcset", "style", "action", "xlink:href"}, tag
        assert not [a for a in attributes if a.startswith("on")], tag
        assert attributes.get("href", "#").startswith("#")
    styles = "".join(t for _, _, t in page.named("style"))
    assert "url(" not in styles and "@import" not in styles and "http" not in styles
    anchors = {a["id"] for _, a, _, _ in page.elements if "id" in a}
    assert {a["href"][1:] for _, a, _ in page.named("a")} == anchors
    assert "prefers-color-scheme: dark" in styles and "@media print" in styles
    assert any(a.get("name") == "viewport" for _, a, _ in page.named("meta"))
    assert tags["h1"] == 1 and tags["html"] == tags["head"] == tags["body"] == 1
    assert not re.search("[\0-\x08\x0b-\x1f\x7f\u202e]", text)


def test_the_same_bytes_wherever_the_project_is(projects: dict[str, Path], tmp_path: Path) -> None:
    assert html_of(two_programs(tmp_path / "elsewhere")) == html_of(projects["two L3"])


# ---- the pictures -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
def test_one_rectangle_per_storage(projects: dict[str, Path], name: str) -> None:
    manifest, _, shown = drawn(projects[name])
    page = Page(html_of(projects[name]))
    drawings = [i for i, _, _ in page.named("svg")]
    assert len(drawings) == len(shown)
    found: dict[int, list[str]] = {i: [] for i in drawings}
    tiles: Counter[int] = Counter()
    for number, attributes, _ in page.named("rect"):
        if "data-storage" in attributes:
            found[page.drawing(number)].append(attributes["data-storage"])
        else:
            tiles[page.drawing(number)] += 1
    sizes = {s.name: s for s in manifest.storages if s.size}
    for drawing, picture in zip(drawings, shown, strict=True):
        (program,) = [p for p in manifest.programs if p.name == picture.program]
        used = {t.storage for t in program.tensors if t.storage in sizes and sizes[t.storage].home == picture.level}
        assert sorted(found[drawing]) == sorted(used), "each storage of the program at this level once"
        buffers = 0
        for step in program.steps:
            copies = [o.l1_copies if picture.level == "L1" else o.l2_copies if picture.level == "L2" else 0 for o in step.operands]
            buffers += sum(c or 0 for c in copies) + (picture.level == "L1") * (bool(step.accumulator) + bool(step.scratch))
        assert tiles[drawing] == buffers


def meet(a: Box, b: Box) -> bool:
    together = a.first <= b.last and b.first <= a.last
    return together and a.offset < b.offset + b.bytes and b.offset < a.offset + a.bytes


def in_place(a: Box, b: Box) -> bool:
    return bool(a.storage and b.storage) and a.offset == b.offset and (a.last == b.first or b.last == a.first)


def check_boxes(shown: list[Picture]) -> int:
    """Nothing that is alive at one step overlaps, but for a result that is computed in place; returns how many are."""
    chains = 0
    for picture in shown:
        assert all(0 <= b.offset and b.offset + b.bytes <= picture.size and 0 <= b.first <= b.last < picture.steps for b in picture.boxes)
        overlaps = [(a, b) for a, b in combinations(picture.boxes, 2) if meet(a, b)]
        assert [pair for pair in overlaps if not in_place(*pair)] == []
        chains += len(overlaps)
    return chains


@pytest.mark.parametrize("name", ALL)
def test_what_is_alive_at_one_step_does_not_overlap(projects: dict[str, Path], name: str) -> None:
    check_boxes(drawn(projects[name])[2])


@pytest.mark.parametrize("name", ALL)
def test_rectangles_are_drawn_where_the_data_say(projects: dict[str, Path], name: str) -> None:
    """Widths are steps and heights bytes, by one scale per picture; bars are as wide as the picture."""
    _, _, shown = drawn(projects[name])
    page = Page(html_of(projects[name]))
    for (number, _, _), picture in zip(page.named("svg"), shown, strict=True):
        rectangles = [(i, a) for i, a, _ in page.named("rect") if page.drawing(i) == number]
        bars, boxes = rectangles[: len(picture.bars)], rectangles[len(picture.bars) :]
        for (i, a), bar in zip(bars, picture.bars, strict=True):
            assert (float(a["x"]), float(a["width"])) == (LEFT, PLOT)
            assert int(a["data-readers"]) == bar.readers and ("shared" in a["class"].split()) == bar.shared
            assert page.title(i).startswith(bar.storage) and f"{bar.bytes:,} bytes" in page.title(i) and "members: " in page.title(i)
        foot = max([float(a["y"]) + float(a["height"]) for _, a in boxes], default=0)
        for (i, a), box in zip(boxes, picture.boxes, strict=True):
            step, byte = PLOT / picture.steps, ARENA / picture.size
            assert float(a["x"]) == pytest.approx(LEFT + box.first * step, abs=0.02)
            assert float(a["width"]) == pytest.approx((box.last - box.first + 1) * step, abs=0.02)
            assert float(a["height"]) == pytest.approx(box.bytes * byte, abs=0.02)
            lowest = min(b.offset for b in picture.boxes)
            assert foot - float(a["y"]) == pytest.approx((box.offset + box.bytes - lowest) * byte, abs=0.03)
            assert f"{box.bytes:,} bytes" in page.title(i) and f"offset {box.offset:,}" in page.title(i)


def test_sharing_is_visible(projects: dict[str, Path]) -> None:
    """One bar for the constant of both programs, one for the trained matrix that inference reads; twins have a bar each."""
    page = Page(html_of(projects["two L3"]))
    labels = [t for _, a, t in page.named("text") if a["class"].startswith("label")]
    assert labels.count(f"{SHOWN}: 4 readers, also in infer") == labels.count(f"{SHOWN}: 4 readers, also in train") == 1
    assert labels.count("w: 3 readers, 1 update, also in infer") == 1 and labels.count("v: 2 readers, 1 update") == 1
    assert labels.count("head: 1 reader") == 1
    marks = Counter(a["class"] for _, a, _ in page.named("path"))
    assert marks == {"read": 7, "write": 2}
    alone = Page(html_of(projects["alone"]))
    labels = [t for _, a, t in alone.named("text") if a["class"].startswith("label")]
    assert labels.count(f"{SHOWN}: 1 reader") == labels.count("same: 1 reader") == 2


def test_bars_of_a_shared_storage_are_marked_in_its_steps(projects: dict[str, Path]) -> None:
    _, _, shown = drawn(projects["two L3"])
    bars = {(p.program, b.label[0]): b for p in shown for b in p.bars}
    assert bars["train", HOSTILE].reads == [2, 3] and bars["infer", HOSTILE].reads == [1, 3]
    assert bars["train", "w"].writes == [8] and bars["infer", "w"].writes == [] and bars["infer", "w"].reads == [0]
    assert bars["train", HOSTILE].bytes == COMMON.nbytes and bars["train", "w"].bytes == WEIGHT.nbytes


# ---- names and tables ---------------------------------------------------------------------------------------------------------------


def test_names_cannot_become_markup(projects: dict[str, Path]) -> None:
    text = html_of(projects["two L3"])
    assert "<script" not in text and HOSTILE not in text and "&lt;script&gt;alert(&#x27;c&#x27;)&lt;/script&gt;&amp;amp;" in text
    page = Page(text)
    cells = [t for _, _, t in page.named("td")]
    assert any(f"{SHOWN} (train: MatMul c {SHOWN}:1)" in cell for cell in cells)
    assert "\\u202e" in SHOWN and "\\u000a" in SHOWN and "\u8a9e" in SHOWN


def test_elements_escape_what_is_not_markup() -> None:
    assert element("a", "<b>", Markup("<i></i>"), "&", title_="\"'<", data_x=1, hidden=None) == (
        '<a title="&quot;&#x27;&lt;" data-x="1">&lt;b&gt;<i></i>&amp;</a>'
    )
    assert visible("a\x00\ud800\u2066b\u200dé") == "a\\u0000\\ud800\\u2066b\\u200dé"


def test_tables(projects: dict[str, Path]) -> None:
    page = Page(html_of(projects["two L3"]))
    rows: dict[int, list[str]] = {}
    for tag, _, text, parent in page.elements:
        if tag in ("td", "th"):
            rows.setdefault(parent, []).append("".join(text))
    found = list(rows.values())
    assert ["train", "8", "8", "1.3", "->", "5", "3", "0.8", "0.5"] in found
    assert ["infer", "3", "3", "0.5", "->", "2", "2", "0.3", "0.1"] in found
    assert ["the project", "11", "11", "1.8", "->", "5", "3", "0.8", "1.0"] in found
    assert ["w", "float32", "[8, 6]", "L3", "a file", "train (2), infer (1)", "train (1)", "192"] in found
    assert ["v", "w", "state is shared by identity, never by content"] in found
    assert [r for r in found if r[:1] == ["MatMul"]] == [] and len([r for r in found if r[1:2] == ["MatMul"]]) == 10
    assert len([r for r in found if r[1:2] == ["SGD"]]) == 2
    heads = [t for _, _, t in page.named("h3")]
    assert "Near misses in L3: equal contents that are not shared" in heads and "L2 of infer" in heads


# ---- the command --------------------------------------------------------------------------------------------------------------------


def test_command(projects: dict[str, Path], tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    done = deeploy("report", projects["two L2"], "--html", file)
    assert done.returncode == ExitCode.GOOD and "constants in L2" in done.stdout
    assert file.read_text(encoding="utf-8") == html_of(projects["two L2"])
    done = deeploy("report", projects["two L2"], "--html", tmp_path / "no" / "report.html")
    assert done.returncode == ExitCode.WRONG_USAGE and "cannot be written" in done.stderr
    done = deeploy("report", tmp_path, "--html", tmp_path / "other.html")
    assert done.returncode == ExitCode.WRONG_USAGE and not (tmp_path / "other.html").exists()


# ---- networks of the corpus ---------------------------------------------------------------------------------------------------------


@needs_corpus
@pytest.mark.corpus
def test_networks(tmp_path: Path) -> None:
    generate([Graph(MODELS / "CCT/FP32/CCT_2_32_32_128")], Options("gap9"), tmp_path / "cct")
    training = CORPUS / "training/mlp_accum"
    graphs = [Graph(training / f"mlp_accum_{name}", name) for name in ("train", "optimizer")]
    generate(graphs, Options("gap9", home="L3"), tmp_path / "mlp")
    chains = 0
    for name in ("cct", "mlp"):
        chains += check_boxes(drawn(tmp_path / name)[2])
        Page(html_of(tmp_path / name))
    assert chains, "some result is computed in place"
