"""Kafka's own generated message classes in one JVM: complete batches in one call, without compiling Java.

Each reading or writing function is composed of method handles (Base64 -> bytes -> message -> JSON and back) and
mapped over the lines of one text. So a batch of thousands of records costs a handful of calls.
"""

from base64 import b64decode, b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from py4j.java_gateway import JavaGateway

GROUP_MESSAGES = "org.apache.kafka.coordinator.group.generated"
CLIENT_MESSAGES = "org.apache.kafka.common.message"
_JSON_NODE = "com.fasterxml.jackson.databind.JsonNode"
_PROTOCOL = "org.apache.kafka.common.protocol"
FAILED = "!"
"""A result that begins so is the exception that Kafka raised instead."""


class KafkaClasses:
    """The message classes of one Kafka release, in their own class loader."""

    def __init__(self, gateway: JavaGateway, jars: Sequence[Path], release: str) -> None:
        self.release = release
        self._gateway, self._java = gateway, gateway.jvm.java
        urls = self._array(self._java.net.URL, [self._java.io.File(str(jar)).toURI().toURL() for jar in jars])
        self._loader = self._java.net.URLClassLoader(urls)
        self._handles = self._java.lang.invoke.MethodHandles
        self._lookup = self._handles.publicLookup()
        self._methods: dict[tuple[str, str, int], Any] = {}
        self._functions: dict[tuple[str, str, int], Any] = {}

    def read(self, message: str, version: int, bodies: Sequence[bytes]) -> list[str]:
        """Return Kafka's JSON for each body (without its leading INT16), or FAILED and the exception."""
        function = self._function("read", message, version)
        return self._map(function, [b64encode(body).decode() for body in bodies])

    def write(self, message: str, version: int, texts: Sequence[str]) -> list[bytes]:
        """Return the bytes that Kafka writes for each JSON text, with the version in front. Raises on any failure."""
        results = self._map(self._function("write", message, version), texts)
        failed = [(text, result) for text, result in zip(texts, results, strict=True) if result.startswith(FAILED)]
        assert not failed, failed[0]
        return [b64decode(result) for result in results]

    def rewrite(self, message: str, version: int, bodies: Sequence[bytes]) -> list[bytes | None]:
        """What Kafka writes, version and all, for the message that it reads from each body; None if it rejects it."""
        results = self._map(self._function("rewrite", message, version), [b64encode(body).decode() for body in bodies])
        return [None if result.startswith(FAILED) else b64decode(result) for result in results]

    def new(self, name: str, *arguments: Any) -> Any:
        """Create an instance of a class of this release, by the constructor with that number of parameters."""
        constructors = [c for c in self._class(name).getConstructors() if c.getParameterCount() == len(arguments)]
        handle = self._generic(self._lookup.unreflectConstructor(constructors[0]))  # casts: py4j knows no short
        return handle.invokeWithArguments(self._array(self._java.lang.Object, arguments))

    def call(self, name: str, method: str, *arguments: Any) -> Any:
        """Call a method of a class. For an instance method the first argument is the object.

        Never use `object.method(…)`: py4j caches methods by class name, whatever the class loader.
        """
        key = (name, method, len(arguments))
        if key not in self._methods:
            handles = [self._lookup.unreflect(m) for m in self._class(name).getMethods() if m.getName() == method]
            fitting = next(handle for handle in handles if handle.type().parameterCount() == len(arguments))
            self._methods[key] = self._generic(fitting)
        return self._methods[key].invokeWithArguments(self._array(self._java.lang.Object, arguments))

    def constant(self, name: str, constant: str) -> Any:
        """The value of a public constant of a class."""
        return self._class(name).getField(constant).get(None)

    def nested(self, name: str, constant: str) -> dict[str, Any]:
        """Return the value of that constant in each public nested class that has it, by class name."""
        found = [(each.getName(), field) for each in self._class(name).getClasses() for field in each.getFields()]
        return {inner: field.get(None) for inner, field in found if field.getName() == constant}

    def same(self, one: Any, other: Any) -> bool:
        """Whether both are the same Java object."""
        identity = self._java.lang.System.identityHashCode
        return bool(identity(one) == identity(other))

    def _map(self, function: Any, lines: Sequence[str]) -> list[str]:
        if not lines:
            return []
        stream = self._gateway.jvm.java.util.regex.Pattern.compile("\n").splitAsStream("\n".join([*lines, "end"]))
        joined: str = (
            stream.limit(len(lines)).map(function).collect(self._gateway.jvm.java.util.stream.Collectors.joining("\n"))
        )
        results = joined.split("\n")
        assert len(results) == len(lines)
        return results

    def _function(self, kind: str, message: str, version: int) -> Any:
        key = (kind, message, version)
        if key not in self._functions:
            build = {"read": self._reader, "write": self._writer, "rewrite": self._rewriter}[kind]
            safe = self._catching(self._chain(build(message, version)))
            proxies, function = self._java.lang.invoke.MethodHandleProxies, self._class("java.util.function.Function")
            self._functions[key] = proxies.asInterfaceInstance(function, safe)
        return self._functions[key]

    def _reader(self, message: str, version: int) -> list[Any]:
        node, short = self._class(_JSON_NODE), self._primitive("Short")
        write = self._lookup.findStatic(
            self._converter(message), "write", self._type(node, self._class(message), short)
        )
        to_string = self._lookup.findVirtual(node, "toString", self._type(self._class("java.lang.String")))
        return [*self._from_base64(message, version), self._fixed(write, 1, version), to_string]

    def _writer(self, message: str, version: int) -> list[Any]:
        node, short = self._class(_JSON_NODE), self._primitive("Short")
        mapper = self._class("com.fasterxml.jackson.databind.ObjectMapper")
        read_tree = self._lookup.findVirtual(mapper, "readTree", self._type(node, self._class("java.lang.String")))
        new_mapper = self._lookup.findConstructor(mapper, self._type(self._primitive("Void")))
        from_json = self._lookup.findStatic(
            self._converter(message), "read", self._type(self._class(message), node, short)
        )
        parse = read_tree.bindTo(new_mapper.invokeWithArguments(self._array(self._java.lang.Object, [])))
        return [parse, self._fixed(from_json, 1, version), *self._to_base64(version)]

    def _rewriter(self, message: str, version: int) -> list[Any]:
        return [*self._from_base64(message, version), *self._to_base64(version)]

    def _from_base64(self, message: str, version: int) -> list[Any]:
        """base64 -> byte[] -> ByteBuffer -> accessor -> message."""
        decoder, short = self._java.util.Base64.getDecoder(), self._primitive("Short")
        data, buffer = self._class("[B"), self._class("java.nio.ByteBuffer")
        accessor, readable = self._class(f"{_PROTOCOL}.ByteBufferAccessor"), self._class(f"{_PROTOCOL}.Readable")
        nothing, text = self._primitive("Void"), self._class("java.lang.String")
        construct = self._lookup.findConstructor(self._class(message), self._type(nothing, readable, short))
        return [
            self._lookup.findVirtual(decoder.getClass(), "decode", self._type(data, text)).bindTo(decoder),
            self._lookup.findStatic(buffer, "wrap", self._type(buffer, data)),
            self._lookup.findConstructor(accessor, self._type(nothing, buffer)),
            self._fixed(construct, 1, version),
        ]

    def _to_base64(self, version: int) -> list[Any]:
        """message -> byte[] -> base64."""
        encoder, data, text = self._java.util.Base64.getEncoder(), self._class("[B"), self._class("java.lang.String")
        utility, message = self._class(f"{_PROTOCOL}.MessageUtil"), self._class(f"{_PROTOCOL}.Message")
        to_bytes = self._lookup.findStatic(
            utility, "toVersionPrefixedBytes", self._type(data, self._primitive("Short"), message)
        )
        encode = self._lookup.findVirtual(encoder.getClass(), "encodeToString", self._type(text, data)).bindTo(encoder)
        return [self._fixed(to_bytes, 0, version), encode]

    def _chain(self, steps: Sequence[Any]) -> Any:
        first, *rest = [self._generic(step) for step in steps]
        for step in rest:
            first = self._handles.filterReturnValue(first, step)
        return first

    def _catching(self, handle: Any) -> Any:
        """Return the function with any exception as its result: FAILED, class and message, on one line."""
        string, text = self._class("java.lang.String"), self._class("java.lang.CharSequence")
        throwable, anything = self._class("java.lang.Throwable"), self._class("java.lang.Object")
        replace = self._lookup.findVirtual(string, "replace", self._type(string, text, text))
        steps = [
            self._lookup.findVirtual(anything, "toString", self._type(string)),
            self._handles.insertArguments(replace, 1, self._array(self._java.lang.Object, ["\n", " "])),
            self._lookup.findVirtual(string, "concat", self._type(string, string)).bindTo(FAILED),
        ]
        return self._handles.catchException(
            handle, throwable, self._chain(steps).asType(self._type(anything, throwable))
        )

    def _generic(self, handle: Any) -> Any:
        return self._handles.explicitCastArguments(handle, handle.type().generic())

    def _fixed(self, handle: Any, position: int, number: int) -> Any:
        return self._handles.insertArguments(
            self._generic(handle), position, self._array(self._java.lang.Object, [number])
        )

    def _converter(self, message: str) -> Any:
        return self._class(f"{message}JsonConverter")

    def _class(self, name: str) -> Any:
        return self._java.lang.Class.forName(name, True, self._loader)

    def _primitive(self, box: str) -> Any:
        return getattr(self._java.lang, box).TYPE

    def _type(self, result: Any, *parameters: Any) -> Any:
        return self._java.lang.invoke.MethodType.methodType(result, self._array(self._java.lang.Class, parameters))

    def _array(self, kind: Any, items: Sequence[Any]) -> Any:
        array = self._gateway.new_array(kind, len(items))
        for index, item in enumerate(items):
            array[index] = item
        return array
