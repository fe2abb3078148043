"""What kind of work the tool calls of an answer are: reading, editing, running, or something else.

A call is told by the name that the client gave the tool. Names are sorted by a closed table of the coding
clients' own tools, and names that are not in it (tools of connected servers, mostly) by their verb. Only the
four counts leave this module: a name is never kept. Each tool call is in the answer of exactly one call of
the gateway, so the counts of a turn's calls add up to the turn's tool calls whatever the client sends back,
compacts or tries again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from gateway_plugin.answers import MAX_PARTS, field_of, parts_of

CLASSES: Final = ("read", "edit", "run", "other")


class ToolCalls(NamedTuple):
    """Tool calls of one answer by class."""

    read: int = 0
    edit: int = 0
    run: int = 0
    other: int = 0

    def fields(self) -> dict[str, int]:
        """Return the counts as fields of the event."""
        return {
            "tool_reads": self.read,
            "tool_edits": self.edit,
            "tool_runs": self.run,
            "tool_others": self.other,
        }


#: Names of tools as their clients spell them, in lower case with ``_`` for ``-``, ``.`` and blanks. Clients:
#: Claude Code, Codex, OpenCode, Copilot (VS Code, Visual Studio), Gemini CLI, Cline and Roo, Cursor; and the
#: tools that providers run.
_NAMES: Final = {
    "read": """
        code_search codebase_search codesearch copilot_getnotebooksummary fetch fetch_rules
        fetch_webpage file_search file_search_call find_symbol get_changed_files get_errors get_file
        get_project_setup_info get_search_view_results github_repo github_text_search glob
        google_web_search grep grep_files grep_search list list_code_definition_names
        list_code_usages list_dir list_directory list_files list_mcp_resource_templates
        list_mcp_resources listmcpresourcestool ls lsp notebookread open_file read read_file
        read_many_files read_mcp_resource read_notebook_cell_output readmcpresourcetool
        search_file_content search_files search_workspace_symbols semantic_search test_search
        tool_search toolsearch view view_image web_fetch web_search web_search_call webfetch
        websearch
    """,
    "edit": """
        apply_diff apply_edit apply_patch apply_patch_call create_directory create_file
        create_new_jupyter_notebook delete_file edit edit_file edit_files edit_notebook
        edit_notebook_file insert_content insert_edit_into_file move_file
        multi_replace_string_in_file multiedit notebookedit patch remove_file rename_file
        rename_symbol replace replace_in_file replace_string_in_file search_and_replace
        search_replace str_replace_based_edit_tool str_replace_editor text_editor
        text_editor_code_execution vscode_renamesymbol write write_file write_to_file
    """,
    "run": """
        await_terminal bash bash_code_execution bashoutput build code_execution code_interpreter
        code_interpreter_call container_exec create_and_run_task exec exec_command execute_command
        get_command_or_process_status get_task_output get_terminal_output kill_terminal killbash
        killshell local_shell local_shell_call powershell python run_build run_command
        run_command_in_terminal run_in_terminal run_notebook_cell run_shell_command run_task
        run_terminal_cmd run_terminal_command run_tests run_vscode_command runtests send_to_terminal
        shell shell_call shell_command taskoutput terminal_last_command terminal_selection
        unified_exec write_stdin
    """,
    "other": """
        agent ask_followup_question askuserquestion attempt_completion computer computer_call
        enterplanmode exit_plan_mode exitplanmode get_vscode_api image_generation_call
        manage_todo_list memory new_task plan_exit question run_subagent runsubagent save_memory
        skill slashcommand switch_mode task think todoread todowrite update_memory update_plan
        update_todo_list write_todos
    """,
}
#: First word of a name that is in no table. A server's tool that creates or changes something of its own (an
#: issue, a ticket) edits no file of the work: other.
_VERBS: Final = {
    "read": "browse describe fetch find get glob grep list lookup ls open query read search show view",
    "edit": "edit insert patch replace write",
    "run": "bash exec execute run shell terminal",
}


def _classes(words: Mapping[str, str]) -> Mapping[str, str]:
    return {word: kind for kind, text in words.items() for word in text.split()}


#: Name of a tool -> its class, and first word of any other name -> its class.
NAMES: Final = _classes(_NAMES)
VERBS: Final = _classes(_VERBS)

_MAX_NAME_CHARS: Final = 128
#: A server's tool names the server first: ``mcp__github__get_issue``, ``functions.read``, ``server/tool``.
_PREFIX: Final = re.compile(r".*(?:__|[./:])")
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_UNFINISHED: Final = frozenset({"queued", "in_progress", "failed", "cancelled"})
_BLOCKS: Final = frozenset({"tool_use", "server_tool_use", "mcp_tool_use"})
#: What an answer says that ended with tool calls.
_CALLING: Final = frozenset({"tool_calls", "tool_use"})


def class_of(name: object) -> str:
    """Return the class of the tool called *name*; ``other`` where neither the table nor its verb tells it."""
    if not isinstance(name, str) or not name or len(name) > _MAX_NAME_CHARS:
        return "other"
    known = NAMES.get(_folded(name))
    if known is None:
        own = _PREFIX.sub("", name)
        known = NAMES.get(_folded(own)) or VERBS.get(_folded(_HUMP.sub("_", own)).split("_", 1)[0])
    return known or "other"


def count(names: Iterable[object]) -> ToolCalls:
    """Return how many of *names* are of each class."""
    found = dict.fromkeys(CLASSES, 0)
    for name in names:
        found[class_of(name)] += 1
    return ToolCalls(**found)


def tool_calls_of(answer: object) -> ToolCalls | None:
    """Return how many tool calls of each class an answer of any of the three APIs makes; object or dict.

    None where the answer does not tell: it is none of theirs, is not finished, or says that it ended with
    tool calls and shows none. Tools that the provider runs (search, code) count too. Never raises.
    """
    if choices := parts_of(field_of(answer, "choices")):
        names = _of_chat(choices)
    else:
        answer = field_of(answer, "response") or answer  # the closing event of a Responses stream
        names = _of_message(answer)
        if names is None:
            names = _of_response(answer)
    if names is None:
        return None
    return count(names[:MAX_PARTS])


def _of_chat(choices: Sequence[Any]) -> list[object] | None:
    names: list[object] = []
    for choice in choices:
        message = field_of(choice, "message")
        if message is None:
            return None
        reason = field_of(choice, "finish_reason")
        calls = parts_of(field_of(message, "tool_calls"))
        names += [field_of(field_of(c, "function") or field_of(c, "custom"), "name") for c in calls]
        if reason == "function_call":  # before there were tools
            names.append(field_of(field_of(message, "function_call"), "name"))
        elif not calls and _is_calling(reason):
            return None
    return names


def _of_message(answer: object) -> list[object] | None:
    content = field_of(answer, "content")
    if not isinstance(content, (list, tuple)):
        return None
    names: list[object] = [
        field_of(b, "name") for b in parts_of(content) if _is_in(field_of(b, "type"), _BLOCKS)
    ]
    return None if not names and _is_calling(field_of(answer, "stop_reason")) else names


def _of_response(answer: object) -> list[object] | None:
    output = field_of(answer, "output")
    if not isinstance(output, (list, tuple)) or _is_in(field_of(answer, "status"), _UNFINISHED):
        return None
    names: list[object] = []
    for item in parts_of(output):
        kind = field_of(item, "type")
        if isinstance(kind, str) and kind.endswith("_call"):
            names.append(field_of(item, "name") or kind)
    return names


def _is_calling(reason: object) -> bool:
    return _is_in(reason, _CALLING)


def _is_in(value: object, known: frozenset[str]) -> bool:
    return isinstance(value, str) and value in known


def _folded(name: str) -> str:
    return name.lower().replace("-", "_").replace(".", "_").replace(" ", "_")
