"""The command `scalemix`. JAX and scikit-learn are imported when a command runs, not before.

Standard output carries results only: the table, then the path of the page. Progress and messages go
to standard error and are left out when it is no terminal.
"""

import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

__all__ = ["main"]

DONE, FAILED, USAGE = 0, 1, 2
LARGEST_SEED = 2**32 - 1
"""NumPy takes no larger one."""


class Commands(TyperGroup):
    """Refuses an unknown command with the list of those that exist."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of that name."""
        found = super().get_command(ctx, cmd_name)
        if found is None:
            known = ", ".join(sorted(self.commands))
            raise _Refusal(
                f"found command {cmd_name!r}, expected one of: {known}; see '{NAME} --help'"
            )
        return found


class _Refusal(typer.BadParameter):
    """What the user can mend: one line that says what was found, expected, and what to do."""


NAME = "scalemix"
app = typer.Typer(
    cls=Commands,
    add_completion=False,
    rich_markup_mode=None,  # plain help: quicker by half, and the same in a pipe
    pretty_exceptions_enable=False,
    epilog=f"Example:  {NAME} demo --out demo",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status.

    0 done; 2 for what the user can mend, with one line on standard error; 1 for anything else,
    where an unexpected exception keeps its traceback.
    """
    command = typer.main.get_command(app)
    try:
        status = command.main(arguments, prog_name=NAME, standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read the results has enough; keep Python from complaining at its own end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except typer.Abort:
        return FAILED
    except Exception as error:
        # Typer's usage errors: their class has moved between its versions, their status has not.
        if getattr(error, "exit_code", None) != USAGE:
            raise
        print(f"{NAME}: {_one_line(error)}", file=sys.stderr)
        return USAGE
    return FAILED if status else DONE


def _one_line(error: Any) -> str:
    """What Typer found, what the command takes, and where to read on."""
    if isinstance(error, _Refusal):
        return error.message
    found = " ".join(error.message.split()).rstrip(".")
    found = found[:1].lower() + found[1:]
    if error.ctx is None:
        return f"{found}; see '{NAME} --help'"
    command = error.ctx.command
    known = [
        *getattr(command, "commands", ()),
        *(each.opts[0] for each in command.params),
        "--help",
    ]
    return f"{found}, expected one of: {', '.join(known)}; see '{error.ctx.command_path} --help'"


def _print_version(wanted: bool) -> None:
    if wanted:
        # The root is imported already, and no arrow leads from it to here.
        print(f"{NAME} {sys.modules['scalemix'].__version__}")
        raise typer.Exit


@app.callback()
def top(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Show it.")
    ] = False,
) -> None:
    """Bayesian deep learning by scale mixtures of normals."""


def _seed(text: str | int) -> int:
    """A seed that NumPy and JAX take."""
    try:
        seed = int(text)
    except ValueError:
        seed = -1
    if not 0 <= seed <= LARGEST_SEED:
        raise _Refusal(
            f"found --seed {text}, expected a whole number from 0 to {LARGEST_SEED}; give one, or "
            "leave it out"
        )
    return seed


@app.command(
    short_help="Fit embedded data: a table, and a page of figures.",
    epilog=f"Example:  {NAME} demo --out demo --seed 1",
)
def demo(
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder of the page; made if it is missing.")
    ] = Path("demo"),
    seed: Annotated[
        int, typer.Option(metavar="N", parser=_seed, help="The same seed, the same numbers.")
    ] = 0,
) -> None:
    """Fit data that ship with scikit-learn, print a table, write DIR/report.html."""
    _prepare(out, "report.html")
    with _progress() as say:
        say("starting")
        from scalemix import demo as demonstration

        rows = demonstration.run(out, seed, say)
    _print_table(demonstration.COLUMNS, [row.cells for row in rows])
    print(out / demonstration.PAGE)


def _prepare(out: Path, *names: str) -> None:
    """Make the folder, and refuse it before any work is done if these files cannot stand in it."""
    advice = "expected a folder to write to; name another one"
    if out.exists() and not out.is_dir():
        raise _Refusal(f"found --out {out}, which is a file, {advice}")
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        reason = error.strerror or str(error)
        raise _Refusal(
            f"found --out {out}, which cannot be written ({reason}), {advice}"
        ) from error
    for name in names:
        if (out / name).is_dir():
            raise _Refusal(
                f"found a folder at {out / name}, expected none; move it or name another --out"
            )


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """Something to tell what happens now: one line on standard error, which moves, and goes away.

    Where standard error is no terminal Rich shows nothing.
    """
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status("") as status:
        yield lambda message: status.update(Text(message, style="dim"))


def _print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """For eyes on a terminal; elsewhere a header and rows with tabs between the cells."""
    if not sys.stdout.isatty():
        for cells in (columns, *rows):
            print("\t".join(cells))
        return
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD)
    for index, name in enumerate(columns):
        table.add_column(name, justify="right" if index else "left")
    for cells in rows:
        table.add_row(*cells)
    Console().print(table)


if __name__ == "__main__":
    sys.exit(main())
