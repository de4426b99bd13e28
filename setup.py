"""Packaging. `pip install -e .` gives the `deeploy` command; Targets/ is installed beside the package."""

from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).parent


def version() -> str:
    for line in (ROOT / "Deeploy/__init__.py").read_text().splitlines():
        if line.startswith("__version__"):
            return line.split('"')[1]
    raise RuntimeError("Deeploy/__init__.py has no __version__")


def target_files() -> list[tuple[str, list[str]]]:
    """The C sources and platform files, as data files that keep their folders."""
    folders: dict[str, list[str]] = {}
    for path in sorted((ROOT / "Targets").rglob("*")):
        if path.is_file():
            relative = path.relative_to(ROOT)
            folders.setdefault(f"share/deeploy/{relative.parent}", []).append(str(relative))
    return list(folders.items())


setup(
    name="deeploy-compiler",
    version=version(),
    description="Compiles ONNX networks to C for GAP9 and PULP class microcontrollers",
    license="Apache-2.0",
    python_requires=">=3.11",
    packages=find_packages(include=["Deeploy", "Deeploy.*"]),
    package_data={"Deeploy.emit": ["templates/*"], "Deeploy.report": ["templates/*"]},
    data_files=target_files(),
    install_requires=[
        "numpy>=2.0,<3",
        "onnx>=1.17,<2",
        "onnx-graphsurgeon>=0.5.8,<1",
        "mako>=1.3,<2",
        "networkx>=3.2,<4",
    ],
    extras_require={
        "run": ["onnxruntime>=1.20,<2"],
        "test": ["onnxruntime>=1.20,<2", "pytest>=8", "pytest-xdist>=3.5", "hypothesis>=6.100"],
        "gvsoc": [  # what the front-end of GVSoC imports
            *("prettytable", "pexpect", "lz4", "pycryptodome", "rich", "psutil", "hjson", "pyelftools", "tabulate", "PyYAML", "six"),
        ],
        "lint": ["ruff>=0.9", "mypy>=1.13"],
    },
    entry_points={"console_scripts": ["deeploy = Deeploy.cli:entry"]},
)
