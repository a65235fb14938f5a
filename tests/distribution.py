"""Builds the wheel and the sdist, checks them, and trains with each in an empty environment.

`make dist` runs `python -m tests.distribution`. The training is the beginning of the README's
section "Command line" with fewer steps, then the first program of its section "Python API". They
run in an empty directory outside the clone.

The wheel is installed with the versions of `constraints.txt`, the sdist with the newest ones.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import click

ROOT = Path(__file__).parents[1]
DIST = ROOT / "build" / "dist"
README = (ROOT / "README.md").read_text(encoding="utf-8")
FAST = ("--quiet", "--no-compile")
QUIET = "--config-setting=--global-option=--quiet"
COMMANDS = re.findall(r"^(eagerly (?:train|resume) .*?)(?: +#.*)?$", README, re.M)[:2]
PROGRAM = re.findall(r"```python\n(.*?)```", README, re.S)[0]
WHERE = """import sys, eagerly
print(eagerly.__file__)
sys.exit(not eagerly.__file__.startswith(sys.prefix))"""


def build() -> list[Path]:
    """Builds and checks both files. Returns the wheel and the sdist."""
    shutil.rmtree(DIST, ignore_errors=True)
    _run([sys.executable, "-m", "build", QUIET, "--outdir", str(DIST)], ROOT)
    (wheel,), (sdist,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    _run([sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(sdist)], ROOT)
    with tarfile.open(sdist) as archive:
        members = (m.name.partition("/")[2] for m in archive.getmembers() if not m.isdir())
        found = {name for name in members if ".egg-info/" not in name} - {"PKG-INFO"}
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True)
    if wrong := found ^ set(listed.stdout.decode().splitlines()) - {".gitignore"}:
        raise SystemExit(f"only one of {sdist.name} and `git ls-files` contains {sorted(wrong)}")
    return [wheel, sdist]


def train(package: Path, options: list[str], steps: int) -> None:
    """Installs a package in an empty environment, and trains and resumes in an empty directory."""
    environment = DIST / "environment"
    program = str(environment / "bin" / "python")
    try:
        _run([sys.executable, "-m", "venv", str(environment)], ROOT)
        with tempfile.TemporaryDirectory() as folder:
            _run([program, "-m", "pip", "install", *FAST, str(package), *options], folder)
            _run([program, "-c", WHERE], folder)
            for count, command in enumerate(COMMANDS, 1):
                less = re.sub(r"--steps \d+", f"--steps {count * steps}", command).split()
                more = ["--warmup-steps", str(steps // 2)] if count == 1 else []
                _run([str(environment / "bin" / less[0]), *less[1:], *more], folder)
            _run([program, "-c", PROGRAM], folder)
    finally:
        shutil.rmtree(environment, ignore_errors=True)


def _run(command: list[str], folder: str | Path) -> None:
    """Prints and runs a command without the clone on the import path. Exits if it fails."""
    click.secho("$ " + " ".join(command), bold=True)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if code := subprocess.run(command, cwd=folder, env=environment).returncode:
        raise SystemExit(f"exit status {code}")


@click.command(help=__doc__)
@click.option("--steps", default=400, show_default=True, help="Steps of the first command.")
def main(steps: int) -> None:
    """Builds, checks and tries both files."""
    wheel, sdist = build()
    train(wheel, ["--constraint", str(ROOT / "constraints.txt")], steps)
    train(sdist, [], steps)
    click.echo(f"{DIST.relative_to(ROOT)}: {wheel.name} and {sdist.name} are complete")


if __name__ == "__main__":
    main()
