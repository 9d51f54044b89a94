"""langgraph-sdk against the server. Arguments: URL, key, what to do."""

import asyncio
import sys
import uuid

import httpx
from langgraph_sdk import get_client, get_sync_client
from langgraph_sdk.errors import ConflictError, NotFoundError

url, key, what = sys.argv[1:4]
SAID = {"messages": [{"role": "user", "content": "the answer?"}]}
HELLO = {"messages": [{"role": "user", "content": "hello"}]}
END = "The command printed 42, so the answer is 42."


def sync():
    return get_sync_client(url=url, api_key=key)


def basics():
    client = sync()
    graphs = {one["graph_id"]: one for one in client.assistants.search()}
    assert {"agent", "sandbox-agent"} <= set(graphs), graphs
    assert client.assistants.get("agent")["assistant_id"] == graphs["agent"]["assistant_id"]
    assert client.assistants.get_graph("agent")["nodes"]
    assert client.assistants.get_schemas("agent")["graph_id"] == "agent"
    thread = client.threads.create(metadata={"mine": 1})
    id = thread["thread_id"]
    assert thread["status"] == "idle" and thread["metadata"] == {"mine": 1}, thread
    modes = ["values", "messages-tuple", "custom"]
    seen = [part for part in client.runs.stream(id, "agent", input=SAID, stream_mode=modes)]
    names = [part.event for part in seen]
    assert names[0] == "metadata" and names[-1] == "end", names
    assert set(names) <= {"metadata", "values", "messages", "custom", "end"}, names
    assert seen[-1].data == {"status": "success"}, seen[-1]
    pieces = [part.data[0] for part in seen if part.event == "messages"]
    last = [part for part in seen if part.event == "values"][-1].data["messages"]
    assert [message["type"] for message in last] == ["human", "ai", "tool", "ai", "tool", "ai"], last
    assert last[-1]["content"] == END, last[-1]
    text = "".join(p["content"] for p in pieces if p["id"] == last[-1]["id"])
    assert text == END, text
    result = last[4]
    assert "42" in result["content"] and result["status"] == "success", result
    facts = result["additional_kwargs"]["atoll"]
    assert facts["sandbox_id"] and facts["exec_id"], facts
    printed = "".join(p.data["text"] for p in seen if p.event == "custom" and p.data["type"] == "tool_output")
    assert "42" in printed, printed
    thread = client.threads.get(id)
    assert thread["status"] == "idle" and thread["metadata"]["graph_id"] == "agent", thread
    assert client.threads.search(metadata={"graph_id": "agent"})[0]["thread_id"] == id
    assert client.threads.search(metadata={"graph_id": "other"}) == []
    assert client.threads.search(select=["thread_id", "status"]) == [{"thread_id": id, "status": "idle"}]
    assert client.threads.count() == 1
    state = client.threads.get_state(id)
    assert state["values"]["messages"] == last and state["next"] == [], state
    history = client.threads.get_history(id, limit=100)
    assert history[0]["checkpoint"] == state["checkpoint"]
    for newer, older in zip(history, history[1:]):
        assert newer["parent_checkpoint"]["checkpoint_id"] == older["checkpoint"]["checkpoint_id"], newer
    assert history[-1]["parent_checkpoint"] is None
    first = history[-1]["checkpoint"]["checkpoint_id"]
    assert client.threads.get_state(id, checkpoint_id=first)["checkpoint"]["checkpoint_id"] == first
    run = client.runs.list(id)[0]
    assert run["status"] == "success" and client.runs.get(id, run["run_id"])["run_id"] == run["run_id"]
    assert client.runs.join(id, run["run_id"])["messages"] == last
    values = client.runs.wait(id, "agent", input=HELLO)
    assert values["messages"][-1]["content"] == "Hello there, person.", values
    client.threads.update(id, metadata={"more": 2})
    assert client.threads.get(id)["metadata"]["mine"] == 1 and client.threads.get(id)["metadata"]["more"] == 2
    client.threads.delete(id)
    try:
        client.threads.get(id)
        raise AssertionError("it is still there")
    except NotFoundError:
        pass


def resume():
    """A stream that is read again from its start, and from its middle, has the same events."""
    client = sync()
    id = client.threads.create()["thread_id"]
    seen = list(client.runs.stream(id, "agent", input=SAID, stream_mode=["values", "messages-tuple"]))
    run = seen[0].data["run_id"]
    again = list(client.runs.join_stream(id, run, last_event_id="-1"))
    assert [(p.event, p.data) for p in again] == [(p.event, p.data) for p in seen]
    middle = seen[len(seen) // 2].id
    rest = list(client.runs.join_stream(id, run, last_event_id=middle))
    assert 0 < len(rest) < len(seen)
    assert [(p.event, p.data) for p in rest] == [(p.event, p.data) for p in seen[-len(rest):]]


def stateless():
    client = sync()
    values = client.runs.wait(None, "agent", input=HELLO)
    assert values["messages"][-1]["content"] == "Hello there, person.", values
    seen = [part.event for part in client.runs.stream(None, "agent", input=HELLO)]
    assert seen[0] == "metadata" and seen[-1] == "end" and "updates" not in seen, seen
    assert client.threads.count() == 0, "the threads of runs without one are gone"


def failures():
    client = sync()
    id = client.threads.create()["thread_id"]
    failing = {"messages": [{"role": "user", "content": "fail"}]}
    seen = list(client.runs.stream(id, "agent", input=failing))
    assert seen[-1].event == "error" and "key" in seen[-1].data["message"].lower(), seen[-1]
    assert client.threads.get(id)["status"] == "error"
    try:
        client.runs.wait(id, "agent", input=failing)
        raise AssertionError("it did not fail")
    except Exception as error:
        assert "key" in str(error).lower(), error
    unknown = {"messages": [{"role": "user", "content": "an unknown tool"}]}
    values = client.runs.wait(id, "agent", input=unknown)
    assert values["messages"][-2]["status"] == "error", values["messages"][-2]
    assert values["messages"][-1]["content"] == "There is no such tool."
    try:
        client.runs.create(str(uuid.uuid4()), "agent", input=HELLO)
        raise AssertionError("there is no such thread")
    except NotFoundError:
        pass
    try:
        client.runs.create(id, "no-such-agent", input=HELLO)
        raise AssertionError("there is no such assistant")
    except NotFoundError:
        pass


def cancel():
    client = sync()
    id = client.threads.create()["thread_id"]
    slow = {"messages": [{"role": "user", "content": "take your time"}]}
    for part in client.runs.stream(id, "agent", input=slow, stream_mode=["custom"]):
        if part.event == "metadata":
            run = part.data["run_id"]
        if part.event == "custom" and part.data["type"] == "tool_output":
            break
    try:
        client.runs.create(id, "agent", input=HELLO, multitask_strategy="reject")
        raise AssertionError("a run is under way")
    except ConflictError:
        pass
    waits = client.runs.create(id, "agent", input=HELLO, multitask_strategy="enqueue")
    assert waits["status"] == "pending", waits
    client.runs.cancel(id, run, wait=True)
    assert client.runs.get(id, run)["status"] == "interrupted"
    values = client.runs.join(id, waits["run_id"])
    assert values["messages"][-1]["content"] == "Hello there, person.", values["messages"][-1]


def approval():
    client = sync()
    id = client.threads.create()["thread_id"]
    config = {"configurable": {"approval": "all"}}
    values = client.runs.wait(id, "agent", input=SAID, config=config)
    asked = values["__interrupt__"][0]
    assert asked["value"]["action_requests"][0]["name"] == "create_session", asked
    assert client.threads.get(id)["status"] == "interrupted"
    state = client.threads.get_state(id)
    assert state["tasks"][0]["interrupts"][0]["id"] == asked["id"] and state["next"] == ["tools"], state
    approve = {"resume": {"decisions": [{"type": "approve"}]}}
    values = client.runs.wait(id, "agent", command=approve, config=config)
    assert values["__interrupt__"][0]["value"]["action_requests"][0]["name"] == "execute_terminal", values
    session = values["__interrupt__"][0]["value"]["action_requests"][0]["args"]["session_id"]
    edited = {"name": "execute_terminal", "args": {"session_id": session, "command": "echo edited"}}
    edit = {"resume": {"decisions": [{"type": "edit", "edited_action": edited}]}}
    values = client.runs.wait(id, "agent", command=edit, config=config)
    assert "__interrupt__" not in values and "edited" in values["messages"][-2]["content"], values
    assert client.threads.get(id)["status"] == "idle"


def fork():
    client = sync()
    id = client.threads.create()["thread_id"]
    client.runs.wait(id, "agent", input=HELLO)
    first = client.threads.get_state(id)["checkpoint"]["checkpoint_id"]
    client.runs.wait(id, "agent", input={"messages": [{"role": "user", "content": "one"}]})
    values = client.runs.wait(id, "agent", input={"messages": [{"role": "user", "content": "two"}]}, checkpoint_id=first)
    said = [message["content"] for message in values["messages"] if message["type"] == "human"]
    assert said == ["hello", "two"], said
    other = client.threads.copy(id)["thread_id"]
    assert client.threads.get_state(other)["values"] == client.threads.get_state(id)["values"]
    client.threads.update_state(id, {"messages": [{"role": "user", "content": "three"}]})
    assert client.threads.get_state(id)["values"]["messages"][-1]["content"] == "three"


def items():
    client = sync()
    client.store.put_item(["a", "b"], "k", {"colour": "red", "nul": "x\0y"})
    item = client.store.get_item(["a", "b"], "k")
    assert item["value"] == {"colour": "red", "nul": "x\0y"}, item
    assert client.store.search_items(["a"], filter={"colour": "red"})["items"][0]["key"] == "k"
    assert client.store.search_items(["a"], filter={"colour": "blue"})["items"] == []
    assert client.store.list_namespaces()["namespaces"] == [["a", "b"]]
    client.store.delete_item(["a", "b"], "k")
    assert client.store.get_item(["a", "b"], "k") is None


async def asynchronous():
    """The asynchronous client's runs, several at once."""
    client = get_client(url=url, api_key=key)
    ids = [thread["thread_id"] for thread in await asyncio.gather(*(client.threads.create() for _ in range(3)))]

    async def talk(id):
        seen = [part async for part in client.runs.stream(id, "agent", input=SAID, stream_mode=["values", "messages-tuple"])]
        return seen[-1].data, [part for part in seen if part.event == "values"][-1].data["messages"][-1]["content"]

    async with asyncio.timeout(100):
        for end, text in await asyncio.gather(*(talk(id) for id in ids)):
            assert end == {"status": "success"} and text == END, (end, text)
        run = await client.runs.create(ids[0], "agent", input=HELLO)
        values = await client.runs.join(ids[0], run["run_id"])
        assert values["messages"][-1]["content"] == "Hello there, person.", values
        listed = await client.runs.list(ids[0])
        assert [one["status"] for one in listed] == ["success", "success"], listed
        again = [part.event async for part in client.runs.join_stream(ids[0], run["run_id"], last_event_id="-1")]
        assert again[0] == "metadata" and again[-1] == "end", again
        waited = await client.runs.wait(None, "agent", input=HELLO)
        assert waited["messages"][-1]["content"] == "Hello there, person.", waited
        for id in ids:
            await client.threads.delete(id)


def open_one_stream_at_a_time(stream):
    """This client closes a stream that it still opens when a second subscription comes, and then waits for it for ever."""
    opens, turn = stream._reconcile_stream, asyncio.Lock()

    async def in_turn(wanted):
        async with turn:
            await opens(wanted)

    stream._reconcile_stream = in_turn


async def protocol():
    """Protocol v2: threads.stream of the asynchronous client."""
    client = get_client(url=url, api_key=key)
    thread = str(uuid.uuid4())
    async with client.threads.stream(thread, assistant_id="agent") as stream:
        open_one_stream_at_a_time(stream)
        await stream.run.start(input=SAID)
        messages, tools = [], []

        # The client reads on only while it is asked for the next message, so that texts are awaited later.
        async def read_messages():
            async for message in stream.messages:
                messages.append(message)

        async def read_tools():
            async for call in stream.tool_calls:
                tools.append(call.name)

        await asyncio.wait_for(asyncio.gather(read_messages(), read_tools()), 60)
        texts = [await asyncio.wait_for(message.text, 60) for message in messages]
        output = await asyncio.wait_for(stream.output, 60)
    assert texts == ["I make a session.", "I run it.", END], texts
    assert tools == ["create_session", "execute_terminal"], tools
    assert output["messages"][-1]["content"] == END, output


async def respond():
    """Protocol v2: an interrupt and the answer to it."""
    client = get_client(url=url, api_key=key)
    async with client.threads.stream(str(uuid.uuid4()), assistant_id="agent") as stream:
        await stream.run.start(input=SAID, config={"configurable": {"approval": "all"}})
        async with asyncio.timeout(60):
            while not stream.interrupts:
                await asyncio.sleep(0.05)
        assert stream.interrupts[0]["value"]["action_requests"][0]["name"] == "create_session"
        await stream.run.respond({"decisions": [{"type": "reject", "message": "not now"}]})
    state = await client.threads.get_state(stream.thread_id)
    assert state["values"]["messages"]


def nul():
    client = sync()
    id = client.threads.create(metadata={"nul": "x\0y"})["thread_id"]
    values = client.runs.wait(id, "agent", input={"messages": [{"role": "user", "content": "a\0b"}], "odd\0key": 1})
    assert values["messages"][0]["content"] == "a\0b", values
    assert client.threads.get(id)["metadata"]["nul"] == "x\0y"
    body = {"assistant_id": "agent", "input": HELLO, "no_such_field": {"x": [1, 2]}, "durability": "sync"}
    answer = httpx.post(f"{url}/threads/{id}/runs/wait", json=body, headers={"x-api-key": key}, timeout=60)
    assert answer.status_code == 200, answer.text


def is_gone(get):
    try:
        get()
    except NotFoundError:
        return
    raise AssertionError("it is still there")


def assistants():
    client = sync().assistants
    made = client.create("agent", name="mine", metadata={"m": 1}, config={"configurable": {"max_iterations": 1}})
    id = made["assistant_id"]
    assert client.count(metadata={"m": 1}) == 1 and client.count(graph_id="no-such") == 0
    assert client.get_subgraphs(id) == {} and client.get_subgraphs(id, namespace="agent") == {}
    values = sync().runs.wait(None, id, input=SAID)
    assert [one["type"] for one in values["messages"]] == ["human", "ai", "tool"], "its own budget"
    changed = client.update(id, name="other", config={"configurable": {}})
    assert (changed["version"], changed["name"]) == (2, "other"), changed
    assert [one["version"] for one in client.get_versions(id)] == [2, 1]
    assert client.set_latest(id, 1)["name"] == "mine" and client.get(id)["version"] == 1
    client.delete(id)
    is_gone(lambda: client.get(id))


def parameters():
    """What runs are asked with, and what is done to several at once."""
    client = sync()
    runs, threads = client.runs, client.threads
    id = str(uuid.uuid4())
    values = runs.wait(id, "agent", input=SAID, if_not_exists="create", interrupt_before=["tools"])
    state = threads.get_state(id)
    assert state["next"] == ["tools"] and values["messages"][-1]["type"] == "ai", state
    assert threads.get_state(id, checkpoint=state["checkpoint"])["values"] == state["values"]
    runs.wait(id, "agent", input=None)
    assert threads.get_state(id)["next"] == ["tools"], "the rule of a run holds for the one that goes on"
    assert runs.wait(id, "agent", input=None)["messages"][-1]["content"] == END
    runs.wait(id, "agent", input=SAID, interrupt_after=["tools"])
    assert threads.get_state(id)["next"] == ["agent"]
    values = runs.wait(id, "agent", command={"update": HELLO}, config={"recursion_limit": 1})
    assert values["messages"][-1]["content"] == "Hello there, person.", values["messages"][-1]
    values = runs.wait(id, "agent", input=SAID, config={"recursion_limit": 1})
    assert values["messages"][-1]["type"] == "tool", values["messages"][-1]
    later = runs.create(id, "agent", input=HELLO, after_seconds=1)
    assert later["status"] == "pending" and runs.join(id, later["run_id"])["messages"][-1]["type"] == "ai"
    runs.delete(id, later["run_id"])
    is_gone(lambda: runs.get(id, later["run_id"]))

    before = threads.get_state(id)["values"]
    slow = {"messages": [{"role": "user", "content": "take your time"}]}
    undone = runs.create(id, "agent", input=slow)
    for part in threads.join_stream(id):
        if "begun" in str(part.data):
            break
    runs.cancel(id, undone["run_id"], wait=True, action="rollback")
    assert threads.get_state(id)["values"] == before
    is_gone(lambda: runs.get(id, undone["run_id"]))

    several = [threads.create()["thread_id"] for _ in range(2)]
    slow = [runs.create(one, "agent", input=slow)["run_id"] for one in several]
    runs.cancel_many(thread_id=several[0], run_ids=slow[:1])
    runs.cancel_many(status="all")
    for one, run in zip(several, slow):
        runs.join(one, run)
        assert runs.get(one, run)["status"] == "interrupted"
    batch = runs.create_batch([{"assistant_id": "agent", "input": HELLO}] * 2)
    assert len({one["run_id"] for one in batch}) == 2, batch
    threads.prune([*several, str(uuid.uuid4())])
    for one in several:
        is_gone(lambda: threads.get(one))


def commands():
    """Protocol v2: commands that no client has a method for."""
    client = sync()
    id = client.threads.create()["thread_id"]
    client.runs.wait(id, "agent", input=HELLO)

    def command(method, **params):
        body = {"id": 1, "method": method, "params": params}
        answer = httpx.post(f"{url}/threads/{id}/commands", json=body, headers={"x-api-key": key}, timeout=60).json()
        assert answer["type"] == "success", answer
        return answer["result"]

    first = command("state.listCheckpoints")["checkpoints"][-1]["id"]
    client.runs.wait(id, "agent", input={"messages": [{"role": "user", "content": "one"}]})
    two = {"messages": [{"role": "user", "content": "two"}]}
    client.runs.join(id, command("state.fork", checkpoint_id=first, input=two)["run_id"])
    messages = client.threads.get_state(id)["values"]["messages"]
    assert [one["content"] for one in messages if one["type"] == "human"][-1] == "two"
    assert "one" not in [one["content"] for one in messages], messages
    tree = command("agent.getTree")
    assert tree["tree"]["graph_name"] == "agent" and tree["graph"]["nodes"], tree


step = globals()[what]
asyncio.run(step()) if asyncio.iscoroutinefunction(step) else step()
