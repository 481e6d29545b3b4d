from pathlib import Path

from offsetstream.cluster.rights import COMMANDS, Right, describe_each, in_words

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "rights.md").read_text("utf-8")


def in_markdown(right: Right) -> str:
    text = str(right).removesuffix(" (*)")
    return text.replace(right.name, f"`{right.name}`") if right.resource != "cluster" else text


def test_the_documented_rights_are_the_declared_ones() -> None:
    table = PAGE.partition("| command | right | without it |\n|---|---|---|\n")[2].partition("\n\n")[0]
    expected = []
    for command, rights in COMMANDS.items():
        expected += [
            f"| `{command}` | {in_markdown(right)} | {right.without or 'exit code 3'} |" for right in rights
        ] or [f"| `{command}` | none | |"]
    assert table.splitlines() == expected


def test_many_rights_make_a_short_text() -> None:
    assert in_words(describe_each("topic", ["b", "a"])) == "DESCRIBE on the topic a, DESCRIBE on the topic b"
    words = in_words(describe_each("group", map(str, range(1000))))
    assert words.endswith(" and 997 more")
    assert len(words) < 200
