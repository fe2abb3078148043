"""Command groups that are imported when they are called, so that ``agentwatt --help`` stays instant."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

#: name -> (module, attribute of its Typer app, one line of help)
DEFERRED: Final[dict[str, tuple[str, str, str]]] = {
    "plan": ("pipeline.sizing.commands", "plan_app", "Size GPUs and gateway from a plan file."),
    "power": ("pipeline.power.commands", "power_app", "Bring measured power into the lake."),
    "knee": ("pipeline.sizing.commands", "knee_app", "Find the knee of a load sweep."),
}


class _Deferred(TyperCommand):
    """Stands in the list of commands; making its context loads the real group and goes on there."""

    def __init__(self, name: str, module: str, attribute: str, text: str) -> None:
        super().__init__(name, help=text, short_help=text)
        self._module, self._attribute = module, attribute

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Return the context of the real group."""
        real = get_command(getattr(import_module(self._module), self._attribute))
        return real.make_context(info_name, args, parent, **extra)


class RootGroup(TyperGroup):
    """The root command with the deferred groups beside its own commands."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, (module, attribute, text) in DEFERRED.items():
            self.commands[name] = _Deferred(name, module, attribute, text)
