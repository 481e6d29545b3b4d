"""Look up known vulnerabilities of the jars that we run or ship: the second half of `make audit`.

It reads PySpark's jars, the Maven coordinates in our code, and the jars that the Dockerfile adds to an image. It looks
up every part of a jar: each shaded part has its own pom.properties. If it cannot reach OSV, it uses
`jar_advisories.json` next to this file, which is as old as its date.

A finding that only another project can fix is in that list as `known`, with a reason and a date. It gets one line and
does not change the exit code; only a new finding sets 1. The other exit codes are those of `audit.py`. With the list
alone the code is never 0, since the list has no later advisories: without a new finding it is 3.
"""

from __future__ import annotations

import ast
import json
import re
import sys
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import Request, urlopen

import pyspark

from offsetstream.cluster import java_client, login
from offsetstream.embedded import hadoop
from offsetstream.embedded.artifacts import resolve
from offsetstream.embedded.jvm import DEFAULT_VERSION, kafka_jars
from offsetstream.errors import OffsetstreamError
from offsetstream.spark.session import connectors

ROOT = Path(__file__).parents[1]
LIST = Path(__file__).with_name("jar_advisories.json")
OSV_URL = "https://api.osv.dev/v1/query"  # the path that pip-audit takes
SPARK = f"PySpark {pyspark.__version__}"
CLEAN, VULNERABLE, NOT_ASKED = 0, 1, 3
_TIMEOUT_SECONDS = 20
_QUESTIONS_AT_ONCE = 1000  # OSV refuses more
_FILE = re.compile(r"(?P<artifact>.+?)-(?P<version>\d.*)\.jar")
_DEPENDENCY = re.compile(r"<groupId>\s*([^<\s]+)\s*</groupId>\s*<artifactId>\s*([^<\s]+)\s*</artifactId>")


class Part(NamedTuple):
    """A part of a jar: its Maven name, and where the jar comes from."""

    package: str
    version: str
    jar: str
    by: str


class Finding(NamedTuple):
    """An advisory for one part."""

    part: Part
    id: str
    aliases: tuple[str, ...]
    mended: tuple[str, ...]


def audit(jars: Sequence[Path], osv_url: str = OSV_URL, *, every: bool = False) -> int:
    """Print the findings in `jars` (default: all that we run or ship) and the totals. Return the exit code.

    With `every`, print the known findings too.
    """
    listed = json.loads(LIST.read_text())
    bundles, missing = ({"the jars given": list(jars)}, []) if jars else ours()
    parts, nameless = read(bundles, listed["groups"])
    try:
        found, by = ask_osv(parts, osv_url), ""
    except (OSError, ValueError, LookupError) as error:
        found = ask_list(parts, listed["advisories"])
        by = f" by the list of {listed['date']} (OSV is not reached: {error})"
    files = sum(len(files) for files in bundles.values())
    return tell(files, parts, found, listed["known"], by, [*missing, *nameless], every=every)


def ours() -> tuple[dict[str, list[Path]], list[str]]:
    """Return the jars by where they come from, and a text for each source whose jars are not available."""
    spark = sorted((Path(pyspark.__file__).parent / "jars").glob("*.jar"))
    hadoop_version = next(name.group("version") for jar in spark if (name := _FILE.fullmatch(jar.name))
                          and name.group("artifact") == "hadoop-client-api")  # fmt: skip
    stores = {each.format(hadoop=hadoop_version) for each in hadoop.CONNECTORS.values()}
    wanted: dict[str, Callable[[], list[Path]]] = {
        "CONNECTORS of spark/session.py": partial(resolve, connectors()),
        **{f"{', '.join(each)} of the Dockerfile": partial(resolve, each) for each in dockerfile_adds()},
        **{f"{each} of embedded/hadoop.py": partial(resolve, [each]) for each in sorted(stores)},
        "the plugin of cluster/login.py": partial(resolve, login.java_plugins({"sasl.mechanism": login.MSK_IAM})),
        "LIBRARIES of cluster/java_client.py": partial(resolve, (*java_client.LIBRARIES, *java_client.TOKENS)),
        f"the embedded Kafka {DEFAULT_VERSION}": partial(kafka_jars, "kafka_2.13", DEFAULT_VERSION),
    }
    bundles, missing = {SPARK: spark}, []
    seen = set(spark)
    for by, get in wanted.items():
        try:
            jars = get()
        except OffsetstreamError as error:
            missing.append(f"{by} ({error})")
        else:
            bundles[by] = [jar for jar in jars if jar not in seen]
            seen.update(jars)
    return bundles, missing


def dockerfile_adds(text: str | None = None) -> list[tuple[str, ...]]:
    """Return the coordinates that the Dockerfile's RUN lines name; `ours` has those of `connectors()`."""
    text = (ROOT / "Dockerfile").read_text() if text is None else text
    programs = [ast.parse(each) for each in re.findall(r"python -I -c \"([^\"]+)\"", text)]
    calls = [node for each in programs for node in ast.walk(each) if isinstance(node, ast.Call)]
    asked = [call.args[0] for call in calls if isinstance(call.func, ast.Name) and call.func.id == "resolve"]
    return [tuple(ast.literal_eval(each)) for each in asked if isinstance(each, ast.List)]


def read(bundles: dict[str, list[Path]], groups: dict[str, str]) -> tuple[list[Part], list[str]]:
    """Return the parts of the jars, and the jars whose Maven name is unknown.

    Without pom.properties, the artifact comes from the file name. The group comes from Ivy's folders, else from
    `groups`, else from the jars that depend on it if they all name the same group.
    """
    poms: dict[str, set[str]] = defaultdict(set)
    unnamed: list[tuple[str, Path]] = []
    parts = []
    for by, jars in bundles.items():
        for jar in jars:
            inside = list(_maven(jar, poms))
            parts += [Part(package, version, jar.name, by) for package, version in inside]
            if not any(jar.stem.startswith(f"{package.split(':')[1]}-") for package, _ in inside):
                unnamed.append((by, jar))
    nameless = []
    for by, jar in unnamed:
        file = _FILE.fullmatch(jar.name)
        artifact, version = file.groups() if file else (jar.stem, "")
        in_ivy = jar.parent.name in ("jars", "bundles") and jar.parents[1].name == artifact
        wanted_as = {jar.parents[2].name} if in_ivy else {groups[artifact]} if artifact in groups else poms[artifact]
        if len(wanted_as) == 1 and version:
            parts.append(Part(f"{min(wanted_as)}:{artifact}", version, jar.name, by))
        else:
            nameless.append(f"{jar.name} ({by})")
    return parts, nameless


def _maven(jar: Path, poms: dict[str, set[str]]) -> Iterator[tuple[str, str]]:
    """Yield the packages and versions that a jar declares. Add the groups of its dependencies to `poms`."""
    with zipfile.ZipFile(jar) as opened:
        for name in opened.namelist():
            if not name.startswith("META-INF/maven/"):
                continue
            if name.endswith("/pom.properties"):
                lines = opened.read(name).decode(errors="replace").splitlines()
                has = {key.strip(): value.strip() for key, equals, value in (line.partition("=") for line in lines)
                       if equals}  # fmt: skip
                if has.keys() >= {"groupId", "artifactId", "version"}:
                    yield f"{has['groupId']}:{has['artifactId']}", has["version"]
            elif name.endswith("/pom.xml"):
                pom = opened.read(name).decode(errors="replace").replace("${scala.binary.version}", "2.13")
                for group, artifact in _DEPENDENCY.findall(pom):
                    if "$" not in group:
                        poms[artifact].add(group)


def ask_osv(parts: Iterable[Part], url: str) -> list[Finding]:
    """Return OSV's findings; OSError if it cannot be reached, another error if the server is not OSV."""
    where: dict[tuple[str, str], list[Part]] = defaultdict(list)
    for part in parts:
        where[part.package, part.version].append(part)
    questions: list[tuple[tuple[str, str], str | None]] = [(asked, None) for asked in where]
    found: list[tuple[tuple[str, str], str]] = []
    while questions:
        now, questions = questions[:_QUESTIONS_AT_ONCE], questions[_QUESTIONS_AT_ONCE:]
        bodies = [{"package": {"ecosystem": "Maven", "name": package}, "version": version}
                  | ({"page_token": token} if token else {}) for (package, version), token in now]  # fmt: skip
        results = _get(f"{url}batch", {"queries": bodies})["results"]
        for (asked, _), result in zip(now, results, strict=True):
            found += [(asked, each["id"]) for each in result.get("vulns", [])]
            if result.get("next_page_token"):
                questions.append((asked, result["next_page_token"]))
    details = {id: _get(f"{url.removesuffix('query')}vulns/{id}") for id in sorted({id for _, id in found})}
    return [
        Finding(part, id, tuple(details[id].get("aliases", [])), _mended(details[id], part.package))
        for asked, id in found
        for part in where[asked]
    ]


def _get(url: str, body: object = None) -> Any:
    asked = Request(url, data=None if body is None else json.dumps(body).encode())  # noqa: S310  # the user's, or OSV's
    with urlopen(asked, timeout=_TIMEOUT_SECONDS) as answer:  # noqa: S310
        return json.load(answer)


def _mended(advisory: dict[str, Any], package: str) -> tuple[str, ...]:
    events = [
        event
        for each in advisory.get("affected", [])
        if each["package"]["name"] == package
        for span in each.get("ranges", [])
        for event in span["events"]
    ]
    return tuple(sorted({each["fixed"] for each in events if "fixed" in each}, key=order))


def ask_list(parts: Iterable[Part], advisories: list[dict[str, Any]]) -> list[Finding]:
    """Return the findings by the list: its advisories have pairs [introduced, fixed or null] for each package."""
    by_package: dict[str, list[tuple[dict[str, Any], list[list[str]]]]] = defaultdict(list)
    for each in advisories:
        for package, spans in each["affected"].items():
            by_package[package].append((each, spans))
    return [
        Finding(part, each["id"], tuple(each["aliases"]), tuple(fixed for _, fixed in spans if fixed))
        for part in parts
        for each, spans in by_package[part.package]
        if any(order(first) <= order(part.version) and (not fixed or order(part.version) < order(fixed))
               for first, fixed in spans)
    ]  # fmt: skip


_QUALIFIERS = {"alpha": 0, "a": 0, "beta": 1, "b": 1, "milestone": 2, "m": 2, "rc": 3, "cr": 3, "snapshot": 4, "sp": 6}
_RELEASE, _OTHER, _NUMBER = 5, 7, 8
_ZERO = (_NUMBER, 0, "")
_IS_RELEASE = ("final", "ga", "release")


def order(version: str) -> list[tuple[int, int, str]]:
    """Return a key that sorts versions as Maven does: `.Final` is the release, `-jre` and the like come later."""
    items: list[tuple[int, int, str]] = []
    for word in re.findall(r"\d+|[a-z]+", version.lower()):
        if word.isdigit():
            items.append((_NUMBER, int(word), ""))
            continue
        while items and items[-1] == _ZERO:  # 3.0.0-alpha is 3-alpha
            items.pop()
        if word in _QUALIFIERS:
            items.append((_QUALIFIERS[word], 0, ""))
        elif word not in _IS_RELEASE:
            items.append((_OTHER, 0, word))
    while items and items[-1] == _ZERO:
        items.pop()
    return [*items, (_RELEASE, 0, "")]


def tell(
    files: int,
    parts: Sequence[Part],
    found: Sequence[Finding],
    known: list[dict[str, Any]],
    by_list: str,
    unread: list[str],
    *,
    every: bool,
) -> int:
    """Print the new findings, one line for each known group, and the totals. Return the exit code."""
    judged = {(group["by"], id): group for group in known for id in group["ids"]}
    known_as = {
        each: next((judged[each.part.by, id] for id in (each.id, *each.aliases) if (each.part.by, id) in judged), None)
        for each in found
    }  # fmt: skip
    new = [each for each, group in known_as.items() if not group]
    for each in sorted(found if every else new):
        print(_line(each, known_as[each]))
    for group in known:
        here = [each for each, its in known_as.items() if its is group]
        if here:
            mends = f"{group['mended_by']} mends them" if group["mended_by"] else "no release that we know mends them"
            print(f"known since {group['since']}: {group['by']} (jars: {len({each.part.jar for each in here})}, "
                  f"advisories: {len({each.id for each in here})}); {mends}: {group['reason']}")  # fmt: skip
    packages = len({(part.package, part.version) for part in parts})
    ids, new_ids = ({each.id for each in findings} for findings in (found, new))
    print(f"{packages} packages in {files} jars looked up{by_list}, {len(ids)} vulnerabilities, {len(new_ids)} new.")
    if unread:
        print(f"audit: of {len(unread)} nobody knows: {'; '.join(unread)}", file=sys.stderr)
    if by_list and not new:
        print("audit: nobody knows what came after the list", file=sys.stderr)
    return VULNERABLE if new else NOT_ASKED if unread or by_list else CLEAN


def _line(finding: Finding, known: dict[str, Any] | None) -> str:
    part = finding.part
    names = ", ".join((finding.id, *(each for each in finding.aliases if each.startswith("CVE-"))))
    mended = ", ".join(finding.mended) or "no version yet"
    since = f" (known since {known['since']})" if known else ""
    return f"{part.package} {part.version}: {names}, mended in {mended}; {part.by}: {part.jar}{since}"
