from __future__ import annotations

from typing import Any

from gateway_plugin import prefix
from gateway_plugin.agents import MAIN, Agents
from gateway_plugin.blocks import first_human_text, items_of
from tests.gateway_plugin.builders import TOOLS, answer, chat, result, user

MAIN_BODY = chat(user("fix it"), tools=TOOLS)
CHILD = {"system": "You explore.", "tools": TOOLS[:1]}


def agent(agents: Agents, body: dict[str, Any], session: str = "s") -> str:
    return agents.agent_of(session, chain_of(body), len(items_of(body)))


def beside(agents: Agents, body: dict[str, Any], session: str = "s") -> bool:
    return agents.is_beside(session, chain_of(body), len(items_of(body)))


def chain_of(body: dict[str, Any]) -> prefix.Chain:
    items = items_of(body)
    return prefix.build(body, items, seed=1, max_bytes=1 << 22, opening=first_human_text(items))


def test_the_first_caller_of_a_session_is_main() -> None:
    assert agent(Agents(10), MAIN_BODY) == MAIN


def test_a_short_conversation_with_another_system_prompt_is_a_subagent_and_stays_one() -> None:
    agents = Agents(10)
    agent(agents, MAIN_BODY)
    name = agent(agents, chat(user("explore the parser"), **CHILD))
    assert name.startswith("sub-")
    history = [user("explore the parser")]
    for n in range(6):
        history += [answer("", f"c{n}"), result(f"c{n}")]
        assert agent(agents, chat(*history, **CHILD)) == name
        assert agent(agents, chat(user("fix it"), answer("", f"m{n}"), result(f"m{n}"), tools=TOOLS)) == MAIN


def test_parallel_subagents_of_one_kind_are_told_apart() -> None:
    agents = Agents(10)
    agent(agents, MAIN_BODY)
    names = {agent(agents, chat(user(f"explore {i}"), **CHILD)) for i in range(3)}
    assert len(names) == 3


def test_a_subagent_whose_first_message_was_edited_keeps_its_name() -> None:
    agents = Agents(10)
    agent(agents, MAIN_BODY)
    name = agent(agents, chat(user("explore"), **CHILD))
    edited = chat(
        user("explore [cleared]"),
        *[m for i in range(4) for m in (answer("", f"c{i}"), result(f"c{i}"))],
        **CHILD,
    )
    assert agent(agents, edited) == name


def test_the_main_agent_stays_main_after_a_compaction_or_a_changed_system_prompt() -> None:
    agents = Agents(10)
    agent(agents, MAIN_BODY)
    assert agent(agents, chat(user("This session is being continued …"), tools=TOOLS)) == MAIN
    assert agent(agents, chat(user("fix it"), answer("ok"), system="New system.", tools=TOOLS)) == MAIN


def test_a_compaction_call_with_its_own_system_prompt_over_the_same_history_is_main() -> None:
    agents = Agents(10)
    agent(agents, MAIN_BODY)
    assert (
        agent(agents, chat(user("fix it"), answer("ok"), user("summarise"), system="You summarise.")) == MAIN
    )


def test_a_session_that_opens_with_a_call_without_tools_gets_its_main_agent_with_the_tools() -> None:
    agents = Agents(10)
    agent(agents, chat(user("hi"), system="Topics."))
    assert agent(agents, MAIN_BODY) == MAIN


def test_sessions_do_not_share_agents_and_are_bounded() -> None:
    agents = Agents(2)
    for n in range(50):
        assert agent(agents, chat(user("x"), system=f"system {n}", tools=TOOLS), f"s{n}") == MAIN
    assert len(agents._known) == 2


def test_many_subagents_of_one_session_are_bounded() -> None:
    agents = Agents(2)
    agent(agents, MAIN_BODY)
    for n in range(500):
        agent(agents, chat(user(f"task {n}"), **CHILD))
    assert len(agents._session("s").subagents) <= 64


def test_a_short_call_without_tools_in_a_session_of_tools_is_beside_the_work() -> None:
    agents = Agents(10)
    title = chat(user("fix it"), system="Invent a name for this thread.")
    assert not beside(agents, title)
    agent(agents, MAIN_BODY)
    assert beside(agents, title)


def test_what_may_be_work_is_never_beside_it() -> None:
    agents = Agents(10)
    agent(agents, MAIN_BODY)
    assert not beside(agents, chat(user("explore"), **CHILD)), "has tools"
    assert not beside(agents, chat(user("fix it"))), "the main agent's system prompt"
    assert not beside(agents, chat(user("fix it"), answer("a"), user("b"), system="Other.")), (
        "holds an answer"
    )
    assert not beside(agents, chat(user("x" * 50_000), system="Other.")), "long"
    chatty = Agents(10)
    agent(chatty, chat(user("hi")))
    assert not beside(chatty, chat(user("hi"), system="Other.")), "the main agent has no tools"
