"""Commands as users give them: within the tests' process, or in one of their own where Spark must be theirs."""

from testkit import command
from testkit.command import Done

_IN_A_PROCESS = ("run", "dump")


def offsetstream(*arguments: str) -> Done:
    run = command.offsetstream if arguments[0] in _IN_A_PROCESS else command.within
    return run(*arguments)
