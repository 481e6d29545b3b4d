"""Commands as users give them: within the tests' process, or in one of their own where Spark must be theirs."""

from testkit import processes

_IN_A_PROCESS = ("run", "dump")


def offsetstream(*arguments: str) -> processes.Done:
    run = processes.offsetstream if arguments[0] in _IN_A_PROCESS else processes.within
    return run(*arguments)
