"""The command line: exit status, what goes to which stream, and no import before it is needed."""

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from scalemix import cli

RUN = "import sys; from scalemix.cli import main; sys.exit(main())"


# A demonstration that takes no time: the same columns and cells, no JAX.
def fake(body: str = "") -> str:
    """Code that puts it in the place of the true one; its `run` does `body` before it returns."""
    return FAKE.replace("BODY", body)


FAKE = """
import sys, types
from pathlib import Path

class Row:
    cells = ["diabetes", "331", "1.5"]

def run(out, seed, say):
    say(f"fitting [seed {seed}]")
    BODY
    return [Row]

fake = types.ModuleType("scalemix.demo")
fake.COLUMNS, fake.PAGE, fake.run = ("task", "training rows", "RMSE"), "report.html", run
sys.modules["scalemix.demo"] = fake
"""


def scalemix(
    *arguments: str, before: str = "", folder: Path | None = None, **options: object
) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own, some code before it."""
    command = [sys.executable, "-c", f"{before}\n{RUN}", *arguments]
    # The same package as here, whatever folder the process stands in.
    environment = os.environ | {
        "PYTHONPATH": str(Path(cli.__file__).parents[1]),
        "PYTHONUNBUFFERED": "",  # as users have it: a closed pipe is met at the last flush
        "TERM": "xterm",
    }
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    return subprocess.run(command, text=True, cwd=folder, env=environment, check=False, **pipes)


def test_help_and_version_import_nothing_heavy() -> None:
    after = """
import atexit, time
def report():
    heavy = {"jax", "numpy", "scipy", "sklearn", "matplotlib", "jinja2"} & set(sys.modules)
    print("heavy:", sorted(heavy), "seconds:", time.process_time(), file=sys.stderr)
atexit.register(report)
"""
    for argument, words in (("--help", "demo"), ("--version", "scalemix 0.")):
        done = scalemix(argument, before="import sys\n" + after)
        assert done.returncode == 0
        assert words in done.stdout
        heavy, seconds = re.fullmatch(r"heavy: (.*) seconds: (.*)\n", done.stderr).groups()
        assert heavy == "[]"
        # Measured .1 s of processor time, interpreter included; NumPy alone would add as much.
        assert float(seconds) < 0.5


def test_help_of_every_command_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--help"], ["demo", "--help"]):
        assert cli.main(arguments) == 0
        assert "Example:  scalemix demo --out demo" in capsys.readouterr().out
    assert cli.main(["demo", "--help"]) == 0
    assert "--seed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "missing command, expected one of: demo"),
        (["fit"], "found command 'fit', expected one of: demo; see 'scalemix --help'"),
        (["predict", "model", "data"], "found command 'predict', expected one of: demo"),
        (["evaluate"], "found command 'evaluate', expected one of: demo"),
        (["report"], "found command 'report', expected one of: demo"),
        (["reproduce", "--help"], "found command 'reproduce', expected one of: demo"),
        (["benchmark"], "found command 'benchmark', expected one of: demo"),
        (["--sed", "1"], "--sed, expected one of: demo, --version, --help"),
        (["demo", "--sed", "1"], "--sed, expected one of: --out, --seed, --help"),
        (["demo", "--seed"], "'--seed' requires an argument"),
        (["demo", "--seed", "many"], "found --seed many, expected a whole number from 0 to"),
        (["demo", "--seed", "-1"], "found --seed -1, expected a whole number from 0 to"),
        (["demo", "--seed", "4294967296"], "found --seed 4294967296, expected a whole number"),
        (["demo", "more"], "(more), expected one of: --out, --seed, --help"),
    ],
)
def test_what_the_user_can_mend_is_one_line(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(arguments) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert words in told.err
    assert told.err.startswith("scalemix: ")
    assert told.err.count("\n") == 1


def test_folder_is_refused_before_any_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "taken" / "report.html").mkdir(parents=True)
    for name, words in (
        ("file", "which is a file"),
        ("file/below", "which cannot be written (Not a directory)"),
        ("taken", "found a folder at"),
    ):
        assert cli.main(["demo", "--out", str(tmp_path / name)]) == 2
        told = capsys.readouterr().err
        assert words in told
        assert told.count("\n") == 1
    assert (tmp_path / "file").read_text() == "mine"


def test_standard_output_is_a_parsable_table_and_the_page(tmp_path: Path) -> None:
    done = scalemix("demo", "--out", "new/place", before=fake(), folder=tmp_path)
    assert done.returncode == 0
    assert done.stderr == ""  # no terminal, no progress
    lines = done.stdout.splitlines()
    assert [line.split("\t") for line in lines[:-1]] == [
        ["task", "training rows", "RMSE"],
        ["diabetes", "331", "1.5"],
    ]
    assert lines[-1] == os.path.join("new", "place", "report.html")
    assert (tmp_path / "new" / "place").is_dir()


def on_terminal(stream: str, folder: Path) -> tuple[subprocess.CompletedProcess[str], str]:
    """Run the demonstration with one stream on a terminal; also what that showed."""
    ours, theirs = pty.openpty()
    try:
        done = scalemix("demo", "--seed", "7", before=fake(), folder=folder, **{stream: theirs})
    finally:
        os.close(theirs)
    try:
        return done, os.read(ours, 1 << 16).decode()
    except OSError:  # the other end is closed, and nothing was written
        return done, ""
    finally:
        os.close(ours)


def test_progress_goes_to_a_terminal_on_standard_error(tmp_path: Path) -> None:
    done, shown = on_terminal("stderr", tmp_path)
    assert done.returncode == 0
    assert "fitting [seed 7]" in shown
    assert "fitting" not in done.stdout


def test_table_is_pretty_on_a_terminal(tmp_path: Path) -> None:
    done, shown = on_terminal("stdout", tmp_path)
    assert done.returncode == 0
    assert done.stderr == ""
    assert "\t" not in shown
    assert "331" in shown
    assert shown.splitlines()[-1] == os.path.join("demo", "report.html")


@pytest.mark.parametrize(
    ("body", "traceback"),
    [("raise RuntimeError('broken')", True), ("raise KeyboardInterrupt", False)],
)
def test_anything_else_is_status_1(tmp_path: Path, body: str, traceback: bool) -> None:
    done = scalemix("demo", before=fake(body), folder=tmp_path)
    assert done.returncode == 1
    assert ("Traceback" in done.stderr) == traceback
    assert done.stdout == ""


def test_a_reader_who_leaves_is_no_error_message(tmp_path: Path) -> None:
    ours, theirs = os.pipe()
    os.close(ours)  # as `scalemix demo | head -0` does
    try:
        done = scalemix("demo", before=fake(), folder=tmp_path, stdout=theirs)
    finally:
        os.close(theirs)
    assert done.returncode == 1
    assert done.stderr == ""


@pytest.mark.slow
def test_the_demonstration(tmp_path: Path) -> None:
    """Every task beats a forecast that ignores the inputs, by far, and is roughly calibrated."""
    done = scalemix("demo", "--out", "demo", "--seed", "0", folder=tmp_path)
    assert done.returncode == 0
    assert done.stderr == ""
    header, *rows, page = (line.split("\t") for line in done.stdout.splitlines())
    table = {row[0]: dict(zip(header, row, strict=True)) for row in rows}
    assert list(table) == ["diabetes", "breast cancer", "digits"]
    # The spread of the held-out targets is 70.5; least squares has 57, and nets no more to find.
    assert float(table["diabetes"]["RMSE"]) < 63
    # The most frequent class is right in 63 % and 10 % of the rows.
    assert float(table["breast cancer"]["accuracy"]) > 0.94
    assert float(table["digits"]["accuracy"]) > 0.88
    for row in table.values():
        for level in (50, 80, 95):
            # Four standard errors of 111 rows at 50 % are .19; optimised bodies may be off beyond.
            assert abs(float(row[f"coverage of {level} %"]) - level / 100) < 0.2
    text = (tmp_path / page[0]).read_text(encoding="utf-8")
    assert text.count("<img ") == 4 + 3 + 3
    assert all(row["NLL"] in text for row in table.values())
