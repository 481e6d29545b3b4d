"""Commands as users give them: within the tests' process, or in one of their own where Spark must be theirs."""

from click.testing import CliRunner

from offsetstream.cli.main import main
from testkit import command
from testkit.command import Done

_IN_A_PROCESS = ("run", "dump")


def offsetstream(*arguments: str) -> Done:
    if arguments[0] in _IN_A_PROCESS:
        return command.offsetstream(*arguments)
    result = CliRunner().invoke(main, arguments)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return Done(arguments, result.exit_code, result.stdout, result.stderr)
