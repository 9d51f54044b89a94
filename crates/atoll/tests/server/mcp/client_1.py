"""What a program does with the official client, mcp 1.30. Over stdio: client_1.py COMMAND ...; over HTTP: client_1.py URL KEY."""
import asyncio, base64, json, os, sys
from datetime import timedelta

from mcp import ClientSession, StdioServerParameters, types
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client

SIX = ["create_session", "execute_code", "execute_terminal", "import_files", "export_files", "stop_session"]
PICTURE = r"""
import os
class Picture:
    def _repr_png_(self):
        return b"\x89PNG\r\n\x1a\n" + os.urandom(1_200_000)
display(Picture())
"""
notes, progress = [], []


async def heard(message):
    if isinstance(message, types.ServerNotification):
        notes.append(message.root)


async def told(done, total, message):
    progress.append((done, message))


async def work(session):
    begun = await session.initialize()
    assert begun.serverInfo.name == "atoll" and begun.instructions, begun
    assert [tool.name for tool in (await session.list_tools()).tools] == SIX

    async def call(name, **arguments):
        result = await session.call_tool(name, arguments)
        assert not result.isError, result
        return result.structuredContent

    sid = (await call("create_session"))["session_id"]
    await call("execute_code", session_id=sid, code="x = 'é' * 3")
    assert (await call("execute_code", session_id=sid, code="x"))["result"]["text/plain"] == "'ééé'"
    assert (await call("execute_terminal", session_id=sid, command="echo $((6*7))"))["stdout"] == "42\n"
    if os.environ.get("RESTART"):
        print("restart", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        assert (await call("execute_code", session_id=sid, code="x"))["result"]["text/plain"] == "'ééé'"
    # With progress too: what is told of a call must not make its answer an event that is too long.
    for wanted in (None, told):
        code = "import time\ntime.sleep(1.5)\n" + PICTURE
        shown = await session.call_tool("execute_code", {"session_id": sid, "code": code}, progress_callback=wanted)
        picture, = [content for content in shown.content if content.type == "image"]
        assert len(base64.b64decode(picture.data)) > 1 << 20 and len(str(shown.structuredContent)) < 1000
    await call("import_files", session_id=sid, files=[{"file_name": "a.bin", "file_content": base64.b64encode(b"\0\1").decode(), "encoding": "base64"}])
    assert (await call("export_files", session_id=sid, files=[{"source": "a.bin"}]))["success"]
    resource, = (await session.list_resources()).resources
    content = (await session.read_resource(resource.uri)).contents[0]
    assert base64.b64decode(content.blob) == b"\0\1", content
    progress.clear()
    slow = "for n in $(seq 25); do echo $n; sleep 0.1; done"
    result = await session.call_tool("execute_terminal", {"session_id": sid, "command": slow}, progress_callback=told)
    assert result.structuredContent["exit_code"] == 0, result
    bad = await session.call_tool("execute_code", {"session_id": sid, "code": ""})
    assert bad.isError and json.loads(bad.content[0].text)["error"] == "INVALID_INPUT", bad
    assert (await call("stop_session", session_id=sid)) == {"success": True}
    changed = lambda: [note.method for note in notes].count("notifications/resources/list_changed")
    # Over stdio what is told comes before the answer; over HTTP on a connection of its own. A bridge keeps the order of
    # changes and answers.
    if "--server" in sys.argv and not os.environ.get("RESTART"):
        assert changed() == 2, notes
    for _ in range(600 if sys.argv[1].startswith("http") or "--server" in sys.argv else 0):
        if changed() == 2 and sum(note.method == "notifications/message" for note in notes) == 2:
            break
        await asyncio.sleep(0.1)
    assert progress == sorted(progress) and progress, progress
    assert changed() == 2, notes
    print("all of it")


async def main():
    if sys.argv[1].startswith("http"):
        headers = {"Authorization": "Bearer " + sys.argv[2]}
        async with streamablehttp_client(sys.argv[1], headers=headers) as (read, write, _):
            async with ClientSession(read, write, message_handler=heard) as session:
                await work(session)
    else:
        server = StdioServerParameters(command=sys.argv[1], args=sys.argv[2:], env=dict(os.environ))
        async with stdio_client(server) as (read, write):
            async with ClientSession(read, write, timedelta(seconds=90), message_handler=heard) as session:
                await work(session)


asyncio.run(main())
