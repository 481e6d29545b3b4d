"""Run commands as users type them: in the tests' process, or in a separate one if they need their own Spark."""

from testkit import processes

_IN_A_PROCESS = ("run", "dump")


def offsetstream(*arguments: str) -> processes.Done:
    run = processes.offsetstream if arguments[0] in _IN_A_PROCESS else processes.within
    return run(*arguments)
