"""Tool definitions: what clients offer besides the recorded shell tool, and a catalogue of 200.

The recordings carry one tool each, real clients carry a dozen, and a client with a few connected tool servers
carries hundreds. The definitions here are made up, deterministic, and of realistic size; they are in the
form of the OpenAI chat API.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from deploy.local.scenario.plan import Tool

CATALOGUE_SIZE: Final = 200

_Schema = dict[str, object]

_TEXT: Final[_Schema] = {"type": "string"}
_NUMBER: Final[_Schema] = {"type": "integer"}
_FLAG: Final[_Schema] = {"type": "boolean"}

#: name, description, {parameter: (type, description)}, names of the required parameters
_CLIENT_TOOLS: Final = (
    (
        "read",
        "Read a file of the workspace. Returns numbered lines; long files are cut, so ask for a range.",
        {
            "path": (_TEXT, "Path of the file, absolute or relative to the workspace"),
            "offset": (_NUMBER, "First line to return, from 1"),
            "limit": (_NUMBER, "Largest number of lines to return"),
        },
        ("path",),
    ),
    (
        "write",
        "Write a file of the workspace, replacing what is there. Prefer edits for small changes.",
        {"path": (_TEXT, "Path of the file"), "content": (_TEXT, "Complete new content of the file")},
        ("path", "content"),
    ),
    (
        "edit",
        "Replace one exact piece of text in a file. Fails when the text occurs never or more than once.",
        {
            "path": (_TEXT, "Path of the file"),
            "old": (_TEXT, "Text to replace, with enough context to be unique"),
            "new": (_TEXT, "Text to put in its place"),
        },
        ("path", "old", "new"),
    ),
    (
        "glob",
        "List files whose path matches a pattern, newest first.",
        {"pattern": (_TEXT, "Pattern such as src/**/*.py"), "path": (_TEXT, "Folder to start from")},
        ("pattern",),
    ),
    (
        "grep",
        "Search file contents with a regular expression and return matching lines with their paths.",
        {
            "pattern": (_TEXT, "Regular expression"),
            "include": (_TEXT, "Only files whose name matches this pattern"),
            "context": (_NUMBER, "Lines to show around each match"),
        },
        ("pattern",),
    ),
    (
        "fetch_page",
        "Fetch a web page and return its text. Only for addresses that the user or a document gave.",
        {"url": (_TEXT, "Address of the page"), "question": (_TEXT, "What to look for in the page")},
        ("url",),
    ),
    (
        "plan",
        "Keep the list of steps of the current work so that the user can follow it.",
        {
            "steps": ({"type": "array", "items": _TEXT}, "All steps in order"),
            "current": (_NUMBER, "Step at work"),
        },
        ("steps",),
    ),
    (
        "ask_user",
        "Ask the user one question when the work cannot go on without an answer.",
        {"question": (_TEXT, "The question"), "urgent": (_FLAG, "Whether the work waits for the answer")},
        ("question",),
    ),
)

_SUBAGENT_TOOL: Final = {
    "claude-code": "Task",
    "opencode": "task",
    "codex": "spawn_agent",
    "none": "delegate",
}

_SERVERS: Final = (
    "tracker",
    "repository",
    "pipelines",
    "registry",
    "cluster",
    "database",
    "metrics",
    "documents",
    "calendar",
    "messenger",
    "storage",
    "directory",
)
_VERBS: Final = ("list", "get", "create", "update", "delete", "search", "archive")
_OBJECTS: Final = {
    "tracker": ("ticket", "board", "comment"),
    "repository": ("branch", "pull_request", "review"),
    "pipelines": ("run", "job", "artifact"),
    "registry": ("image", "tag", "scan"),
    "cluster": ("deployment", "pod", "config_map"),
    "database": ("table", "query", "snapshot"),
    "metrics": ("series", "dashboard", "alert"),
    "documents": ("page", "folder", "attachment"),
    "calendar": ("event", "room", "invitation"),
    "messenger": ("channel", "message", "thread"),
    "storage": ("bucket", "object", "policy"),
    "directory": ("group", "member", "role"),
}


def _tool(
    name: str,
    description: str,
    parameters: dict[str, tuple[_Schema, str]],
    required: tuple[str, ...],
) -> Tool:
    properties = {key: {**schema, "description": text} for key, (schema, text) in parameters.items()}
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {
                "type": "object",
                "properties": properties,
                "required": list(required),
                "additionalProperties": False,
            },
        },
    }


def subagent_tool_name(client: str) -> str:
    """Return the name of the tool by which *client* starts a subagent."""
    return _SUBAGENT_TOOL[client]


@lru_cache(maxsize=8)
def client_tools(client: str) -> tuple[Tool, ...]:
    """Return the tools that *client* offers besides the recorded one, its subagent tool last."""
    own = [_tool(*definition) for definition in _CLIENT_TOOLS]
    own.append(
        _tool(
            subagent_tool_name(client),
            "Give a part of the work to a subagent with a fresh context. It returns one report.",
            {
                "description": (_TEXT, "The part of the work in three to five words"),
                "prompt": (_TEXT, "Everything the subagent needs to know"),
                "kind": (_TEXT, "Kind of subagent"),
            },
            ("description", "prompt"),
        )
    )
    return tuple(own)


def child_tools() -> tuple[Tool, ...]:
    """Return the smaller set that a subagent gets besides the recorded tool: reading, no writing."""
    return tuple(
        _tool(*definition) for definition in _CLIENT_TOOLS if definition[0] in {"read", "glob", "grep"}
    )


@lru_cache(maxsize=1)
def connected_tools() -> tuple[Tool, ...]:
    """Return the tools of a dozen connected servers, in a fixed order (more than the catalogue needs)."""
    tools = []
    for server in _SERVERS:
        for index, item in enumerate(_OBJECTS[server]):
            for verb in _VERBS:
                tools.append(_connected(server, verb, item, index))
    return tuple(tools)


def full_catalogue(recorded: tuple[Tool, ...]) -> tuple[Tool, ...]:
    """Return exactly :data:`CATALOGUE_SIZE` tools, the *recorded* ones first."""
    return (recorded + connected_tools())[:CATALOGUE_SIZE]


def _connected(server: str, verb: str, item: str, index: int) -> Tool:
    label = item.replace("_", " ")
    parameters: dict[str, tuple[_Schema, str]] = {
        "workspace": (_TEXT, f"Workspace of the {server} server"),
    }
    required = ["workspace"]
    if verb in {"get", "update", "delete", "archive"}:
        parameters[f"{item}_id"] = (_TEXT, f"Id of the {label}")
        required.append(f"{item}_id")
    if verb in {"create", "update"}:
        parameters["fields"] = ({"type": "object"}, f"Fields of the {label} to set")
        required.append("fields")
    if verb in {"list", "search"}:
        parameters["limit"] = ({"type": "integer", "minimum": 1, "maximum": 100}, "Largest number of results")
        parameters["order"] = (
            {"type": "string", "enum": ["newest", "oldest", "name"][: 2 + index % 2]},
            "Order",
        )
    if verb == "search":
        parameters["query"] = (_TEXT, "Words to look for")
        required.append("query")
    return _tool(
        f"mcp__{server}__{verb}_{item}",
        f"{verb.capitalize()} a {label} on the {server} server."
        if verb != "list"
        else f"List every {label}.",
        parameters,
        tuple(required),
    )
