"""What a program does with the official client, mcp 2.3. Over stdio: client_2.py MODE COMMAND ...; over HTTP: client_2.py MODE URL KEY."""
import asyncio, base64, os, sys

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

SIX = ["create_session", "execute_code", "execute_terminal", "import_files", "export_files", "stop_session"]


PICTURE = r"""
import os
class Picture:
    def _repr_png_(self):
        return b"\x89PNG\r\n\x1a\n" + os.urandom(1_200_000)
display(Picture())
"""


async def work(client, modern):
    assert [tool.name for tool in (await client.list_tools()).tools] == SIX
    progress = []

    async def told(done, total, message):
        progress.append((done, message))

    async def call(name, **arguments):
        result = await client.call_tool(name, arguments)
        assert not result.is_error, result
        return result.structured_content

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
        shown = await client.call_tool("execute_code", {"session_id": sid, "code": code}, progress_callback=wanted)
        picture, = [content for content in shown.content if content.type == "image"]
        assert len(base64.b64decode(picture.data)) > 1 << 20 and len(str(shown.structured_content)) < 1000
    await call("import_files", session_id=sid, files=[{"file_name": "a.bin", "file_content": base64.b64encode(b"\0\1").decode(), "encoding": "base64"}])

    async def exported():
        assert (await call("export_files", session_id=sid, files=[{"source": "a.bin"}]))["success"]

    if modern:
        async with client.listen(resources_list_changed=True) as heard:
            await exported()
            async for _ in heard:
                break
    else:
        await exported()
    resource, = (await client.list_resources(cache_mode="bypass")).resources
    content = (await client.read_resource(resource.uri)).contents[0]
    assert base64.b64decode(content.blob) == b"\0\1", content
    progress.clear()
    slow = "for n in $(seq 25); do echo $n; sleep 0.1; done"
    result = await client.call_tool("execute_terminal", {"session_id": sid, "command": slow}, progress_callback=told)
    assert result.structured_content["exit_code"] == 0 and progress and progress == sorted(progress), (result, progress)
    bad = await client.call_tool("execute_code", {"session_id": sid, "code": ""})
    assert bad.is_error and bad.structured_content["error"] == "INVALID_INPUT", bad
    endless = asyncio.create_task(client.call_tool("execute_code", {"session_id": sid, "code": "while True: pass", "timeout": 120}))
    await asyncio.sleep(1)
    endless.cancel()
    try:
        await endless
    except asyncio.CancelledError:
        pass
    assert (await call("execute_code", session_id=sid, code="x"))["result"]["text/plain"] == "'ééé'"
    assert (await call("stop_session", session_id=sid)) == {"success": True}
    print("all of it")


async def long(client):
    """Progress, which begins after ten seconds, makes the answer one event, whatever its size."""
    progress = []

    async def told(done, total, message):
        progress.append(done)

    sid = (await client.call_tool("create_session", {})).structured_content["session_id"]
    code = "import time\nfor n in range(11):\n    print(n, flush=True)\n    time.sleep(1)\n" + PICTURE
    shown = await client.call_tool("execute_code", {"session_id": sid, "code": code, "timeout": 100}, progress_callback=told)
    picture, = [content for content in shown.content if content.type == "image"]
    assert len(base64.b64decode(picture.data)) > 1 << 20 and progress, (len(picture.data), progress)
    print("all of it")


async def main():
    mode, where = sys.argv[1], sys.argv[2]
    modern = mode != "legacy"
    if where.startswith("http"):
        headers = {"Authorization": "Bearer " + sys.argv[3]}
        async with httpx2.AsyncClient(headers=headers, timeout=120) as http:
            options = {"max_sse_event_size": None} if os.environ.get("LONG") else {}
            async with Client(streamable_http_client(where, http_client=http, **options), mode=mode) as client:
                await (long(client) if options else work(client, modern))
    else:
        server = StdioServerParameters(command=where, args=sys.argv[3:], env=dict(os.environ))
        async with Client(server, mode=mode) as client:
            await work(client, modern)


asyncio.run(main())
