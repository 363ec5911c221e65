"""An extension of Griffe, which reads the sources for the reference of the Python API.

Griffe does not run them.  So this module repeats what decorators do to signatures, and removes the
names that `dir` omits.  It also shows the values of constants that are defaults, and makes links of
the errors after `Raises:`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import griffe

from leveret.client.shell.shown import (
    INTERNAL_OF_CHANNEL,
    INTERNAL_OF_CONNECTION,
    INTERNAL_OF_CONSUMER,
)

#: The names that are not public, by the classes of the client and their bases.
INTERNAL = {
    "Channel": INTERNAL_OF_CHANNEL,
    "ChannelOwner": INTERNAL_OF_CHANNEL,
    "ClusterMessage": frozenset({"again"}),
    "Connection": INTERNAL_OF_CONNECTION,
    "Consumer": INTERNAL_OF_CONSUMER,
    "Message": frozenset({"owner"}),
    "Receiver": INTERNAL_OF_CHANNEL,
    "ShellChannel": INTERNAL_OF_CHANNEL,
    "ShellConnection": INTERNAL_OF_CONNECTION,
    "ShellConsumer": INTERNAL_OF_CONSUMER,
}

#: The functions whose keyword arguments are described one by one; others refer to these.
DESCRIBED = ("__init__", "connect", "deliver", "publish")

#: The functions that make a method of a channel from a function in `client.shell.requests`.
MAKERS = ("awaited", "waited_for")

#: The errors of a docstring, up to the end of the paragraph.
RAISES = re.compile(r"\s+Raises( [a-z ]+)?:(.*?)(?=\n\n|\Z)", re.DOTALL)


class Shapes(griffe.Extension):  # type: ignore[misc]  # without types where it is not installed
    """Changes the package as soon as it is loaded."""

    def on_package(self, *, pkg: griffe.Module, loader: griffe.GriffeLoader, **_: Any) -> None:
        """Change everything that the reference can show."""
        if pkg.name != "leveret":
            return
        for shell in ("asynchronous", "blocking"):
            add_requests(pkg[f"client.{shell}.channel.Channel"], pkg["client.shell.requests"])
        errors = public_errors(pkg)
        for one in objects_in(pkg):
            if one.docstring is not None:
                one.docstring.value = with_links(one.docstring.value, errors)
            if one.is_class:
                remove_internal(one)
                infer_types(one)
            elif one.is_function:
                take_options(one)
                unpack_options(one, loader.modules_collection)
                show_constants(one, pkg)


def objects_in(module: griffe.Module) -> Iterator[griffe.Object]:
    """Yield the modules, classes and functions inside a module."""
    for member in list(module.members.values()):
        if not member.is_alias:
            yield member
            if member.is_module or member.is_class:
                yield from objects_in(member)


def add_requests(channel: griffe.Class, requests: griffe.Module) -> None:
    """Turn the attributes of a channel that `awaited` and `waited_for` make into methods."""
    for name, member in list(channel.members.items()):
        value = member.value if not member.is_alias and member.is_attribute else None
        if not isinstance(value, griffe.ExprCall) or str(value.function) not in MAKERS:
            continue
        make = requests[str(value.arguments[0]).rpartition(".")[2]]
        itself = griffe.Parameter("self", kind=griffe.ParameterKind.positional_or_keyword)
        method = griffe.Function(
            name,
            lineno=member.lineno,
            endlineno=member.endlineno,
            parameters=griffe.Parameters(itself, *make.parameters),
            returns=make.returns.slice,  # of `Request[…]`
            docstring=griffe.Docstring(make.docstring.value),
        )
        if str(value.function) == "awaited":
            method.labels.add("async")
        channel.set_member(name, method)


def remove_internal(kind: griffe.Class) -> None:
    """Remove the names of a class of the client that are not public."""
    if ".client." not in kind.path:
        return
    for name in INTERNAL.get(kind.name, ()):
        kind.members.pop(name, None)


def take_options(job: griffe.Function) -> None:
    """Give a job the fields of its options as parameters, as `takes` does."""
    for decorator in job.decorators:
        if decorator.callable_path.endswith("pipelines.options.takes"):
            options = job.module[str(decorator.value.arguments[0])]
            session = job.parameters["spark"]
            session.kind = griffe.ParameterKind.positional_only
            job.parameters = griffe.Parameters(session, *list(options.parameters)[1:])


def unpack_options(function: griffe.Function, modules: griffe.ModulesCollection) -> None:
    """Replace `**options: Unpack[…]` by the options, as `shows_options` does."""
    shows = any(one.callable_path.endswith(".shows_options") for one in function.decorators)
    if not shows and function.path != "leveret.wire.basic_properties.BasicProperties.__init__":
        return
    last = list(function.parameters)[-1]
    # Inherited fields come first in a signature, but last in the attributes of a class.
    kind = modules[last.annotation.slice.canonical_path]
    options = sorted(kind.attributes.values(), key=lambda one: one.name in kind.members)
    del function.parameters[last.name]
    for one in options:
        function.parameters.add(
            griffe.Parameter(
                one.name,
                annotation=one.annotation,
                kind=griffe.ParameterKind.keyword_only,
                default="None",
            )
        )
    if function.name in DESCRIBED:
        described = [
            griffe.DocstringParameter(
                one.name,
                description=one.docstring.value,
                annotation=one.annotation,
                value="None",
            )
            for one in options
            if one.docstring is not None
        ]
        if function.docstring is None:
            function.docstring = griffe.Docstring("", parent=function)
        function.docstring.parsed.append(griffe.DocstringSectionParameters(described))


def show_constants(function: griffe.Function, package: griffe.Module) -> None:
    """Replace the names of constants of the project, in defaults, by their values."""
    for parameter in function.parameters:
        if isinstance(parameter.default, griffe.Expr):
            parts = parameter.default.iterate(flat=True)
            parameter.default = "".join(value_of(part, package) or str(part) for part in parts)


def value_of(part: object, package: griffe.Module) -> str | None:
    """Return the number or the text of a constant, or None for another part of an expression."""
    path = getattr(part, "canonical_path", "")
    if not path.startswith("leveret."):
        return None
    try:
        value = str(package[path.removeprefix("leveret.")].value)
    except (KeyError, AttributeError):
        return None
    return value if re.fullmatch(r"[\d._]+|'[^']*'|\"[^\"]*\"", value) else None


def infer_types(kind: griffe.Class) -> None:
    """Give attributes the types of the parameters that they hold, and drop their labels."""
    given = {one.name: one.annotation for one in kind.parameters}
    for attribute in kind.members.values():
        if attribute.is_alias or not attribute.is_attribute:
            continue
        attribute.labels -= {"class-attribute", "instance-attribute"}
        if attribute.annotation is None or str(attribute.annotation) == "Final":
            attribute.annotation = given.get(str(attribute.value))
        elif str(attribute.annotation) == "i64":
            attribute.annotation = "int"


def public_errors(package: griffe.Module) -> dict[str, str]:
    """Return the path in the reference of each public error."""
    paths = {name: f"leveret.errors.{name}" for name in package["errors"].classes}
    for module in ("client", "testing"):
        names = [str(name) for name in package[module].exports or ()]
        paths |= {name: f"leveret.{module}.{name}" for name in names}
    clusters = [str(name) for name in package.exports or ()]
    return paths | {name: f"leveret.{name}" for name in clusters}


def with_links(text: str, errors: dict[str, str]) -> str:
    """Return a docstring whose errors are a paragraph of their own, with links."""

    def raised(found: re.Match[str]) -> str:
        # Code stays as it is.
        named = re.sub(
            r"`[^`]*`|\b[A-Z]\w+",
            lambda name: f"[`{name[0]}`][{errors[name[0]]}]" if name[0] in errors else name[0],
            found[2],
        )
        return f"\n\n**Raises{found[1] or ''}:**{named}"

    return RAISES.sub(raised, text)
