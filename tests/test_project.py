"""The project's own promises: layout, pins, the one line of config.yaml, and commands in the documents."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]


def shell_lines(document: Path) -> list[str]:
    """Command lines of the document's ``sh`` blocks, continuation lines joined."""
    blocks = re.findall(r"```sh\n(.*?)```", document.read_text(encoding="utf-8"), re.DOTALL)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    return [line.strip() for line in lines if line.strip() and not line.strip().startswith("#")]


def test_constraint_files_hold_pins_and_no_download_addresses() -> None:
    for path in (ROOT / "constraints").glob("*.txt"):
        for line in path.read_text(encoding="utf-8").splitlines():
            assert re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!+_-]+", line), (path.name, line)


@pytest.mark.parametrize("folder", ["deploy/local/node", "dashboards/preview"])
def test_the_lock_file_of_the_node_packages_holds_no_download_addresses(folder: str) -> None:
    text = (ROOT / folder / "package-lock.json").read_text(encoding="utf-8")
    assert '"integrity"' in text
    assert '"resolved"' not in text


def test_the_only_line_of_the_proxy_configuration_about_us_is_the_callback() -> None:
    lines = [
        line
        for line in (ROOT / "config.yaml").read_text(encoding="utf-8").splitlines()
        if not line.lstrip().startswith("#") and re.search("agentwatt|gateway_plugin", line)
    ]
    assert lines == ['  callbacks: ["gateway_plugin.callback.telemetry"]']


def test_the_shim_that_the_proxy_loads_holds_one_absolute_import_and_one_instance() -> None:
    source = (ROOT / "gateway_plugin/callback.py").read_text(encoding="utf-8")
    code = source.split('"""')[2].strip().splitlines()
    assert [line for line in code if line] == [
        "from gateway_plugin.hook import AgentwattLogger",
        "telemetry = AgentwattLogger()",
    ]


def test_each_extra_stands_alone() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    names = {
        extra: {re.split(r"[<>=!\[ ]", requirement)[0] for requirement in requirements}
        for extra, requirements in extras.items()
    }
    assert not names["gateway"] & {"duckdb", "asyncpg", "typer", "altair", "jinja2"}
    assert not names["pipeline"] & {"xxhash", "opentelemetry-api", "litellm"}
    assert "litellm" not in names["gateway"]


def test_every_dependency_is_justified_in_its_line() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    section = text[text.index("dependencies = [") : text.index("dev = [")]
    for line in section.splitlines():
        if re.match(r'\s+"(?!agentwatt)', line):
            assert "#" in line, line


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_between_documents_resolve(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", document.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (document.parent / target).exists(), target


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_make_targets_in_documents_exist(document: Path) -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for line in shell_lines(document):
        words = shlex.split(line)
        if words[0] == "make":
            assert set(words[1:]) <= targets, line


def test_continuous_integration_runs_the_readmes_test_command_after_installing_system_programs() -> None:
    script = (ROOT / ".ci/run").read_text(encoding="utf-8")
    code = [line for line in script.splitlines() if line and not line.startswith("#")]
    assert code[:2] == ["set -euo pipefail", 'cd "$(dirname "$0")/.."']
    assert code[-1] == "CI=true exec make test"
    assert re.findall(r"\b(?:make|pytest|pip|npm|ruff|mypy)\b", "\n".join(code)) == ["make"]
    assert "make test" in shell_lines(ROOT / "README.md")


def run_continuous_integration(folder: Path, *programs: str, apt: str) -> tuple[int, str]:
    """Run .ci/run where only *programs* are installed, with stand-ins for make and apt-get."""
    for name, text in {
        "make": 'echo "make $* with CI=$CI"',
        "apt-get": f'echo "apt-get $*" >&2; {apt}',
        **dict.fromkeys(programs, ":"),
    }.items():
        (folder / name).write_text(f"#!{shutil.which('bash')}\n{text}\n", encoding="utf-8")
        (folder / name).chmod(0o755)
    (folder / "dirname").symlink_to(shutil.which("dirname") or "")
    script = [shutil.which("bash") or "", str(ROOT / ".ci/run")]
    done = subprocess.run(
        script, env={"PATH": str(folder)}, capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stdout + done.stderr


def test_continuous_integration_installs_only_what_is_missing(tmp_path: Path) -> None:
    code, output = run_continuous_integration(tmp_path, "chromium", "prometheus", apt="true")
    assert code == 0
    assert "apt-get update -qq" in output
    assert "apt-get install -y -qq --no-install-recommends prometheus\n" in output
    assert "make test with CI=true" in output


def test_continuous_integration_installs_nothing_where_everything_is_there(tmp_path: Path) -> None:
    code, output = run_continuous_integration(tmp_path, "chromium", "prometheus", "promtool", apt="exit 1")
    assert (code, output) == (0, "make test with CI=true\n")


def test_continuous_integration_says_what_it_cannot_install(tmp_path: Path) -> None:
    code, output = run_continuous_integration(tmp_path, "chromium", apt="exit 100")
    assert code == 2
    assert "prometheus cannot be installed (root and apt-get are needed)" in output
    assert "make test" not in output


def test_the_configuration_is_yaml_with_unique_model_names() -> None:
    models = yaml.safe_load((ROOT / "config.yaml").read_text())["model_list"]
    names = [m["model_name"] for m in models]
    assert len(names) == len(set(names)) == 3
