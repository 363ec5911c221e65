"""Generate `methods/` and `basic_properties.py` from the table in `spec.py`.

    python -m leveret.wire.generate          write the files next to this module
    python -m leveret.wire.generate --check  list the files that differ; exit 1 if any does

The output is formatted as by `ruff format`.  This module is not compiled, because it is a
development tool and `python -m` cannot run a compiled module.  `render()` does no I/O.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
from collections.abc import Iterator

from leveret.wire.generate_properties import GENERATED, properties_module
from leveret.wire.spec import (
    BOTH,
    CLASSES,
    CLIENT,
    SERVER,
    ClassSpec,
    Field,
    MethodSpec,
)

_PYTHON_TYPES = {
    "bit": "bool",
    "octet": "int",
    "short": "int",
    "long": "int",
    "longlong": "int",
    "timestamp": "int",
    "shortstr": "str",
    "longstr": "bytes",
    "table": "dict[str, object] | None",
}
_ZEROS = {
    "bit": "False",
    "shortstr": '""',
    "longstr": 'b""',
    "table": "None",
}
#: The sizes of reserved fields with a fixed size, in bytes.
_SIZES = {"octet": 1, "short": 2, "long": 4, "longlong": 8}


def render() -> dict[str, str]:
    """Return the text of every generated file by its path below `wire/`."""
    files = {f"methods/{each.name}.py": _class_module(each) for each in CLASSES}
    files["methods/decode.py"] = _decode_module()
    files["methods/ids.py"] = _lines(_ids_lines())
    files["methods/__init__.py"] = _package()
    files["basic_properties.py"] = properties_module()
    return files


def main(arguments: list[str]) -> int:
    """Write or check the files; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m leveret.wire.generate", description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 on a difference"
    )
    check = parser.parse_args(arguments).check
    home = pathlib.Path(__file__).parent
    stale = [path for path, text in render().items() if _read(home / path) != text]
    for path in stale:
        if not check:
            (home / path).parent.mkdir(exist_ok=True)
            (home / path).write_text(render()[path], encoding="utf-8")
        sys.stdout.write(f"{'differs' if check else 'written'}: {path}\n")
    return 1 if check and stale else 0


def _read(path: pathlib.Path) -> str:
    """Return the text of a file, or an empty string if it does not exist."""
    return path.read_text(encoding="utf-8") if path.exists() else ""


def _lines(parts: Iterator[str]) -> str:
    """Return the lines as one string."""
    return "\n".join(parts) + "\n"


def _call(indent: str, head: str, items: list[str], tail: str) -> Iterator[str]:
    """Yield `head(items)tail` on one line if it fits, else one line for each item."""
    line = f"{indent}{head}({', '.join(items)}){tail}"
    if len(line) <= 100:
        yield line
        return
    yield f"{indent}{head}("
    for item in items:
        yield f"{indent}    {item},"
    yield f"{indent}){tail}"


# -- a module for each class -----------------------------------------------------------------------


def _class_module(each: ClassSpec) -> str:
    """Return the module of one AMQP class."""
    return _lines(_class_lines(each))


def _class_lines(each: ClassSpec) -> Iterator[str]:
    """Yield the lines of the module of one AMQP class."""
    yield f'"""The methods of AMQP class {each.name} ({each.class_id}): {each.doc}.'
    yield ""
    yield GENERATED
    yield '"""'
    yield ""
    yield "from __future__ import annotations"
    yield ""
    yield "from typing import ClassVar, final"
    yield ""
    yield "from mypy_extensions import i64"
    yield ""
    fields = [field for method in each.methods for field in method.fields]
    kinds = {field.kind for field in fields if not field.reserved}
    verb = ", write_i64_be" if "longlong" in kinds else ""
    if any(method.names for method in each.methods):
        cleans = any(method.named_arguments for method in each.methods)
        yield f"from leveret.names import Name{', clean_argument' if cleans else ''}"
    yield f"from leveret.wire.buffer import BytesWriter{verb}"
    yield "from leveret.wire.fields import FieldReader"
    yield "from leveret.wire.method import Method"
    yield from _imports(kinds)
    for method in each.methods:
        yield ""
        yield ""
        yield from _method_class(method)
    for method in each.methods:
        if method.fields:
            yield ""
            yield ""
            yield from _read_function(method)
    yield ""
    yield ""
    yield from _dispatch(each)


def _imports(kinds: set[str]) -> Iterator[str]:
    """Yield the imports needed only by some classes."""
    primitives = []
    if "longlong" in kinds:
        primitives.append("checked_i64")
    primitives += [
        f"write_{kind}" for kind in sorted(kinds) if kind not in {"bit", "longlong", "table"}
    ]
    if primitives:
        line = f"from leveret.wire.primitives import {', '.join(primitives)}"
        if len(line) <= 100:
            yield line
        else:
            yield "from leveret.wire.primitives import ("
            yield from (f"    {name}," for name in primitives)
            yield ")"
    if "table" in kinds:
        yield "from leveret.wire.tables import write_table"


def _method_class(method: MethodSpec) -> Iterator[str]:
    """Yield the class of one method."""
    named = [field for field in method.fields if not field.reserved]
    yield "@final"
    yield f"class {method.class_word}(Method):"
    number = f"{method.class_id}.{method.method_id}"
    yield f'    """{method.full_name} ({number}): {_lower(method.doc)}"""'
    yield ""
    yield f"    CLASS_ID: ClassVar[int] = {method.class_id}"
    yield f"    METHOD_ID: ClassVar[int] = {method.method_id}"
    yield f'    NAME: ClassVar[str] = "{method.full_name}"'
    if method.has_content:
        yield "    HAS_CONTENT: ClassVar[bool] = True"
    if method.sender in {CLIENT, BOTH}:
        yield "    FROM_CLIENT: ClassVar[bool] = True"
    if method.sender in {SERVER, BOTH}:
        yield "    FROM_SERVER: ClassVar[bool] = True"
    if method.replies:
        yield f"    REPLIES: ClassVar[tuple[str, ...]] = {_tuple(method.replies)}"
    if named:
        yield from _fields_tuple([field.name for field in named])
    if method.secrets:
        yield f"    SECRETS: ClassVar[tuple[str, ...]] = {_tuple(method.secrets)}"
    if named:
        yield ""
        yield from _constructor(method, named)
    yield ""
    yield from _write_function(method)


def _lower(doc: str) -> str:
    """Return a sentence with a lower-case first letter."""
    return doc[0].lower() + doc[1:]


def _tuple(items: tuple[str, ...]) -> str:
    """Return a tuple of strings as source text."""
    quoted = ", ".join(f'"{item}"' for item in items)
    return f"({quoted},)" if len(items) == 1 else f"({quoted})"


def _fields_tuple(names: list[str]) -> Iterator[str]:
    """Yield the tuple of the fields' names."""
    line = f"    FIELDS: ClassVar[tuple[str, ...]] = {_tuple(tuple(names))}"
    if len(line) <= 100:
        yield line
        return
    yield "    FIELDS: ClassVar[tuple[str, ...]] = ("
    yield from (f'        "{name}",' for name in names)
    yield "    )"


def _default(field: Field) -> str:
    """Return the default of a field as source text."""
    if field.default is None:
        return _ZEROS.get(field.kind, "0")
    if field.kind == "shortstr":
        return f'"{field.default}"'
    if field.kind == "longstr":
        return f'b"{field.default}"'
    return field.default


def _constructor(method: MethodSpec, fields: list[Field]) -> Iterator[str]:
    """Yield `__init__`."""
    items = [f"{field.name}: {_PYTHON_TYPES[field.kind]} = {_default(field)}" for field in fields]
    line = f"    def __init__(self, {', '.join(items)}) -> None:"
    joined = f"        self, {', '.join(items)}"
    if len(line) <= 100:
        yield line
    elif len(joined) <= 100:
        yield "    def __init__("
        yield joined
        yield "    ) -> None:"
    else:
        yield "    def __init__("
        yield "        self,"
        yield from (f"        {item}," for item in items)
        yield "    ) -> None:"
    for field in fields:
        yield from _assignment(method, field)


def _assignment(method: MethodSpec, field: Field) -> Iterator[str]:
    """Yield the statement that assigns one field."""
    name = field.name
    if name in method.names:
        yield f"        self.{name} = Name({name})"
        return
    if field.kind == "table":
        line = f"        self.{name}: dict[str, object] = {{}} if {name} is None else {name}"
        if len(line) <= 100:
            yield line
            return
        yield f"        self.{name}: dict[str, object] = ("
        yield f"            {{}} if {name} is None else {name}"
        yield "        )"
    elif field.kind == "longlong":
        yield f"        self.{name}: i64 = checked_i64({name})"
    else:
        yield f"        self.{name} = {name}"


def _groups(fields: tuple[Field, ...]) -> Iterator[list[Field]]:
    """Yield the fields one by one, with up to eight consecutive bits together."""
    bits: list[Field] = []
    for field in fields:
        if bits and (field.kind != "bit" or len(bits) == 8):
            yield bits
            bits = []
        if field.kind == "bit":
            bits.append(field)
        else:
            yield [field]
    if bits:
        yield bits


def _write_function(method: MethodSpec) -> Iterator[str]:
    """Yield `write`."""
    head = bytes(
        (method.class_id >> 8, method.class_id & 255, method.method_id >> 8, method.method_id & 255)
    )
    yield "    def write(self, w: BytesWriter) -> None:"
    yield '        """Write class id, method id and arguments."""'
    text = "".join(f"\\x{byte:02x}" for byte in head)
    yield f'        w.write(b"{text}")'
    for group in _groups(method.fields):
        if group[0].kind == "bit":
            yield from _write_bits(group)
        else:
            yield _write_field(group[0])


def _write_bits(bits: list[Field]) -> Iterator[str]:
    """Yield the statement that writes one octet of bits."""
    terms = [
        f"({1 << index} if self.{field.name} else 0)"
        for index, field in enumerate(bits)
        if not field.reserved
    ]
    if not terms:
        yield "        w.append(0)  # reserved"
        return
    if len(terms) == 1:
        yield f"        w.append({terms[0][1:-1]})"
        return
    line = f"        w.append({' | '.join(terms)})"
    if len(line) <= 100:
        yield line
        return
    yield "        w.append("
    if len(line) - len("w.append()") + 4 <= 100:
        yield f"            {' | '.join(terms)}"
        yield "        )"
        return
    for index, term in enumerate(terms):
        yield f"            {'| ' if index else ''}{term}"
    yield "        )"


def _write_field(field: Field) -> str:
    """Return the statement that writes a field other than a bit."""
    if field.reserved:
        size = _SIZES.get(field.kind, 4 if field.kind in {"longstr", "table"} else 1)
        text = "\\x00" * size
        return (
            f'        w.write(b"{text}")  # reserved'
            if size > 1
            else "        w.append(0)  # reserved"
        )
    if field.kind == "longlong":
        return f"        write_i64_be(w, self.{field.name})"
    return f"        write_{field.kind}(w, self.{field.name})"


def _read_function(method: MethodSpec) -> Iterator[str]:
    """Yield the function that reads one method's arguments."""
    yield f"def _read_{method.name.replace('-', '_')}(fields: FieldReader) -> {method.class_word}:"
    yield f'    """Read the arguments of {method.full_name}."""'
    items = []
    for group in _groups(method.fields):
        first = group[0]
        if first.kind == "bit":
            named = [field for field in group if not field.reserved]
            yield "    bits = fields.octet()" if named else "    fields.octet()  # reserved"
            for index, field in enumerate(group):
                if not field.reserved:
                    items.append(f"{field.name}=bits & {1 << index} != 0")
        elif first.reserved:
            yield _skip(first)
        else:
            local = "type_" if first.name == "type" else first.name
            verb = "name" if first.name in method.names else first.kind
            yield f"    {local} = fields.{verb}()"
            if first.name == "arguments":
                for argument in method.named_arguments:
                    yield f'    clean_argument(arguments, "{argument}")'
            items.append(f"{first.name}={local}")
    yield from _call("    ", f"return {method.class_word}", items, "")


def _skip(field: Field) -> str:
    """Return the statement that skips a reserved field."""
    if field.kind in _SIZES:
        return f"    fields.step({_SIZES[field.kind]})  # reserved"
    return f"    fields.skip_{field.kind}()  # reserved"


def _dispatch(each: ClassSpec) -> Iterator[str]:
    """Yield the function that maps a method id to its method."""
    yield f"def read_{each.name}(method_id: i64, fields: FieldReader) -> Method | None:"
    yield f'    """Return the method of class {each.name} with that id, or None if unknown.'
    yield ""
    yield "    Raises: SyntaxFault (502), FrameError (501)."
    yield '    """'
    if not any(method.fields for method in each.methods):
        yield "    del fields  # the methods of this class have no fields"
    for method in each.methods:
        read = f"_read_{method.name.replace('-', '_')}(fields)"
        yield f"    if method_id == {method.method_id}:"
        yield f"        return {read if method.fields else f'{method.class_word}()'}"
    yield "    return None"


# -- ids -------------------------------------------------------------------------------------------


def _ids_lines() -> Iterator[str]:
    """Yield the lines of the module of constants."""
    yield '"""The ids of classes and methods; method ids begin with the class id, as in a payload.'
    yield ""
    yield "The first four bytes of a payload are compared with these as one number.  mypyc makes"
    yield "constants only of literals, and looks up a class attribute (`CLASS_ID`) on each use."
    yield ""
    yield GENERATED
    yield '"""'
    yield ""
    yield "from __future__ import annotations"
    yield ""
    yield "from typing import Final"
    yield ""
    for each in CLASSES:
        yield f"{each.name.upper()}: Final = {each.class_id}"
    for each in CLASSES:
        yield ""
        for method in each.methods:
            word = method.full_name.replace(".", "_").replace("-", "_").upper()
            yield f"{word}: Final = 0x{method.class_id << 16 | method.method_id:08X}"


# -- decode and the package ------------------------------------------------------------------------


def _decode_module() -> str:
    """Return the module that decodes the methods of all classes."""
    imports = "\n".join(
        f"from leveret.wire.methods.{name} import read_{name}" for name in sorted(_class_names())
    )
    branches = "\n".join(
        f"    if class_id == {each.class_id}:\n        return read_{each.name}(method_id, fields)"
        for each in sorted(CLASSES, key=_hot_first)
    )
    return _DECODE.format(generated=GENERATED, imports=imports, branches=branches)


def _class_names() -> list[str]:
    """Return the names of the classes."""
    return [each.name for each in CLASSES]


def _hot_first(each: ClassSpec) -> tuple[bool, int]:
    """Return a sort key with basic first, because every message uses its methods."""
    return each.name != "basic", each.class_id


_DECODE = '''"""Decoding of methods of all classes.

{generated}
"""

from __future__ import annotations

from mypy_extensions import i64

from leveret.errors import AmqpError, FrameError, NotImplementedFault
from leveret.wire.buffer import read_i16_be
from leveret.wire.fields import FieldReader
from leveret.wire.method import Method
{imports}


def decode_method(payload: bytes, start: i64, end: i64) -> Method:
    """Return the method in `payload[start:end]`, the payload of a method frame.

    Raises: NotImplementedFault (540) for an unknown class or method, SyntaxFault (502) for
    arguments that are too short, too long or invalid, FrameError (501) for a name that is not
    UTF-8 or a payload without ids, PreconditionFailed (406) for a name of line ends only.  The
    error contains the class and method ids.
    """
    if end - start < 4:
        raise FrameError("a method frame is too short for its class and method ids")
    class_id: i64 = i64(read_i16_be(payload, start)) & 0xFFFF
    method_id: i64 = i64(read_i16_be(payload, start + 2)) & 0xFFFF
    fields = FieldReader(payload, start + 4, end)
    try:
        method = _read(class_id, method_id, fields)
        if method is not None:
            fields.finish()
    except AmqpError as error:
        error.class_id = class_id
        error.method_id = method_id
        raise
    if method is None:
        text = f"there is no method {{class_id}}.{{method_id}}"
        raise NotImplementedFault(text, class_id, method_id)
    return method


def _read(class_id: i64, method_id: i64, fields: FieldReader) -> Method | None:
    """Return the method, or None if its class or method id is unknown."""
{branches}
    return None
'''


def _package() -> str:
    """Return the package's `__init__`."""
    modules = {each.name: [method.class_word for method in each.methods] for each in CLASSES}
    modules["decode"] = ["decode_method"]
    return _lines(_package_lines(modules))


def _package_lines(modules: dict[str, list[str]]) -> Iterator[str]:
    """Yield the lines of the package's `__init__`."""
    yield '"""Every AMQP method as a class, and `decode_method`, which reads them.'
    yield ""
    yield GENERATED
    yield '"""'
    yield ""
    yield "from __future__ import annotations"
    yield ""
    names = []
    for module, words in sorted(modules.items()):
        line = f"from leveret.wire.methods.{module} import {', '.join(sorted(words))}"
        if len(line) <= 100:
            yield line
        else:
            yield f"from leveret.wire.methods.{module} import ("
            yield from (f"    {word}," for word in sorted(words))
            yield ")"
        names += words
    yield ""
    yield "__all__ = ["
    yield from (f'    "{name}",' for name in sorted(names))
    yield "]"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
