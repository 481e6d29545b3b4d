"""Runs a pod of the chart as processes of this machine, without Kubernetes and without a container engine.

Bubblewrap gives each process what a container would have: environment, mounts, a read-only root file system, the user,
no capability. But root and network are those of this machine, and there are no limits of CPU or memory.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

from offsetstream.embedded.artifacts import cache_folder
from offsetstream.embedded.ports import LOOPBACK
from testkit.programs import debian_program
from tests.doors.kubernetes import Manifest
from tests.release.image import DOCKERFILE, Places, stages_of

_ROOT = Path(__file__).parents[2]
_OWN = ("dev", "etc", "proc", "tmp")  # folders of the root that are not this machine's


class Pod:
    """The pod of a Deployment. `manifests` have all that it mounts, and `folder` keeps its volumes.

    `places`: local replacements for addresses and ports.
    """

    def __init__(self, manifests: Sequence[Manifest], places: Mapping[str, str], folder: Path) -> None:
        (deployment,) = (each for each in manifests if each["kind"] == "Deployment")
        self.spec: Manifest = deployment["spec"]["template"]["spec"]
        (self.container,) = self.spec["containers"]
        self._objects = {(each["kind"], each["metadata"]["name"]): each for each in manifests}
        self._places, self._folder = Places(places), folder

    @property
    def grace_seconds(self) -> int:
        return int(self.spec["terminationGracePeriodSeconds"])

    def job(self) -> list[str]:
        """The command of the container: the image's entry point with the pod's arguments."""
        assert "command" not in self.container
        return self.command(["offsetstream", *self.container["args"]])

    def command(self, words: list[str]) -> list[str]:
        """Return the command that runs a program in the container, like `kubectl exec`."""
        user = self.spec["securityContext"]
        identity = ("--unshare-user", "--uid", str(user["runAsUser"]), "--gid", str(user["runAsGroup"]))
        variables = [word for name, value in self._environment() for word in ("--setenv", name, value)]
        bubblewrap = [str(debian_program("bwrap", "bubblewrap")), "--die-with-parent", "--cap-drop", "ALL", *identity]
        return [*bubblewrap, "--unsetenv", "TMPDIR", *variables, *self._root(), *self._places.command(words)]

    def is_well(self, probe: str) -> bool:
        """Run a probe like the kubelet: 4xx and 5xx are failures."""
        asked = self.container[probe]["httpGet"]
        (port,) = (each["containerPort"] for each in self.container["ports"] if each["name"] == asked["port"])
        address = f"http://{LOOPBACK}:{self._places.of(str(port))}{asked['path']}"
        try:
            with urlopen(address, timeout=self.container[probe]["timeoutSeconds"]) as answer:
                return bool(answer.status < 400)
        except (HTTPError, URLError, TimeoutError):
            return False

    def volume(self, name: str) -> Path:
        """Return the local folder of a volume, and create and fill it the first time."""
        folder = self._folder / name
        if not folder.exists():
            folder.mkdir(parents=True)
            (volume,) = (each for each in self.spec["volumes"] if each["name"] == name)
            for file, content in self._files(volume):
                (folder / file).write_bytes(content)
        return folder

    def _files(self, volume: Mapping[str, Any]) -> Iterator[tuple[str, bytes]]:
        if "configMap" in volume:
            for name, text in self._objects["ConfigMap", volume["configMap"]["name"]]["data"].items():
                yield name, text.encode()
        elif "secret" in volume:
            secret = self._objects["Secret", volume["secret"]["secretName"]]
            for name, text in secret.get("stringData", {}).items():
                yield name, text.encode()
            for name, text in secret.get("data", {}).items():
                yield name, base64.b64decode(text)
        elif "persistentVolumeClaim" in volume:
            assert ("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]) in self._objects
        else:
            assert volume.keys() == {"name", "emptyDir"}, volume

    def _environment(self) -> Iterator[tuple[str, str]]:
        yield "HOME", f"/home/{_image_user()[0]}"  # the image has it, and it is read-only
        yield "OFFSETSTREAM_CACHE", str(cache_folder())  # has the image's jars, and is read-only too
        for each in self.container["env"]:
            yield each["name"], self._places.of(each["value"])

    def _root(self) -> Iterator[str]:
        """Yield the options for the root file system, then those for the mounts on it."""
        for each in sorted(Path("/").iterdir()):
            if each.is_symlink():
                yield from ("--symlink", str(each.readlink()), str(each))
            elif each.is_dir() and each.name not in _OWN:
                yield from ("--ro-bind", str(each), str(each))
        yield from ("--dev", "/dev", "--ro-bind", "/proc", "/proc", "--dir", "/etc", "--dir", "/tmp", "--dir", "/data")  # noqa: S108
        for each in sorted(Path("/etc").iterdir()):
            yield from ("--ro-bind-try", str(each), str(each)) if each.name != "passwd" else ()
        passwd = self._folder / "passwd"
        passwd.parent.mkdir(parents=True, exist_ok=True)
        name, uid = _image_user()
        passwd.write_text(f"{name}:x:{uid}:{uid}::/home/{name}:/bin/sh\n", "utf-8")
        yield from ("--ro-bind", str(passwd), "/etc/passwd")
        kinds = {each["name"]: each.keys() - {"name"} for each in self.spec["volumes"]}
        for mount in self.container["volumeMounts"]:
            is_written = not mount.get("readOnly") and kinds[mount["name"]] <= {"emptyDir", "persistentVolumeClaim"}
            yield from ("--bind" if is_written else "--ro-bind", str(self.volume(mount["name"])), mount["mountPath"])
        if self.container["securityContext"]["readOnlyRootFilesystem"]:
            yield from ("--remount-ro", "/")
        # A mount above may hide the folder of this repository.
        yield from ("--ro-bind", str(_ROOT), str(_ROOT), "--chdir", "/data")


def _image_user() -> tuple[str, str]:
    """Return name and number of the image's user."""
    (job,) = (stage for stage in stages_of(DOCKERFILE) if stage.name == "job")
    made = re.match(r"useradd --uid (\d+) --create-home (\w+)", job.last("RUN") or "")
    assert made and made[2] == job.last("USER")
    return made[2], made[1]
