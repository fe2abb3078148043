"""YAML documents that remember the line of every key, and read numbers as people write them.

The stock loader takes ``5.0e6`` for text (YAML 1.1 wants a sign in the exponent) and ``12:30`` for a base-60
number; a plan file must not turn a figure into a string without saying so.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

import yaml

from pipeline.sizing.units import SizingError

_INTEGER: Final = re.compile(r"^[-+]?[0-9][0-9_]*$")
_FLOAT: Final = re.compile(r"^[-+]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?$")


class _Loader(yaml.SafeLoader):
    """Safe loader with decimal numbers only, dates left as text, and duplicate keys refused."""


_KEPT = ("tag:yaml.org,2002:bool", "tag:yaml.org,2002:null", "tag:yaml.org,2002:merge")
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag in _KEPT]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", _INTEGER, list("-+0123456789"))
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+0123456789."))


def _float(loader: _Loader, node: yaml.ScalarNode) -> float:
    return float(str(loader.construct_scalar(node)).replace("_", ""))


def _integer(loader: _Loader, node: yaml.ScalarNode) -> int:
    return int(str(loader.construct_scalar(node)).replace("_", ""))


_Loader.add_constructor("tag:yaml.org,2002:float", _float)
_Loader.add_constructor("tag:yaml.org,2002:int", _integer)


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed document and the line (from 1) where each dotted path stands."""

    name: str
    data: Any
    lines: Mapping[str, int]

    def line(self, path: str) -> int:
        """Line of a path; of its nearest parent when the path itself is absent."""
        while path and path not in self.lines:
            path = path.rpartition(".")[0]
        return self.lines.get(path, 1)


class DocumentError(SizingError):
    """The text is not the YAML it should be; the message carries file and line."""


def parse(text: str, name: str = "<text>") -> Document:
    """Parse one document.

    Raises:
        DocumentError: a syntax error or a duplicate key.
    """
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        lines: dict[str, int] = {}
        if node is None:
            return Document(name, None, lines)
        _walk(node, "", lines, name)
        return Document(name, loader.construct_document(node), lines)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise DocumentError(f"{name}:{line}: {error.problem or 'not valid YAML'}") from error
    except (yaml.YAMLError, ValueError) as error:
        if isinstance(error, SizingError):
            raise
        raise DocumentError(f"{name}:1: {error}") from error
    finally:
        loader.dispose()


def _walk(node: yaml.Node, path: str, lines: dict[str, int], name: str) -> None:
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            here = f"{path}.{key.value}" if path else str(key.value)
            if key.value in seen and key.value != "<<":
                raise DocumentError(f"{name}:{key.start_mark.line + 1}: {here}: given twice")
            seen.add(key.value)
            lines[here] = key.start_mark.line + 1
            _walk(value, here, lines, name)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            here = f"{path}[{index}]"
            lines[here] = item.start_mark.line + 1
            _walk(item, here, lines, name)


def rounded(value: Any) -> Any:
    """Six significant digits for floats, plain containers otherwise, null for what is not finite."""
    if isinstance(value, bool) or value is None or isinstance(value, int | str):
        return value
    if isinstance(value, Fraction):
        return rounded(float(value))
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        short = float(f"{value:.6g}")
        return int(short) if short == int(short) and abs(short) >= 1e6 else short
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: rounded(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(k): rounded(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(v) for v in value]
    return str(value)


def dump(data: Any) -> str:
    """YAML text in the order of ``data``: deterministic, readable, no aliases."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)


class _Dumper(yaml.SafeDumper):
    """Safe dumper without anchors: a report that says ``*id001`` helps nobody."""

    def ignore_aliases(self, data: Any) -> bool:
        return True
