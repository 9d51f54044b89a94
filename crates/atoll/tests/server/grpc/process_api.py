"""A program in a session that calls the process API of its own sandbox."""
import json
import os
import time
import urllib.error
import urllib.request

opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
JSON = {"content-type": "application/json"}


def open_url(path, body=None, headers=JSON):
    data = None if body is None else json.dumps(body).encode()
    return opener.open(urllib.request.Request("http://127.0.0.1:2024" + path, data, headers))


def call(path, body=None, headers=JSON):
    try:
        with open_url(path, body, headers) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def events(answer):
    for line in answer:
        if line.startswith(b"data: "):
            yield json.loads(line[6:])


assert call("/health") == (200, {"status": "ok"})

# Commands are the session's user's own, with its variables and nothing more.
told = call("/exec", {"command": "id -u; pwd; echo e >&2; echo $HOME; exit 3"})[1]
wanted = f"{os.getuid()}\n/workspace\n{os.environ['HOME']}\n"
assert told == {"exit_code": 3, "stdout": wanted, "stderr": "e\n", "timed_out": False}, told
assert call("/exec", {"command": "touch /usr/x"})[1]["exit_code"] == 1
assert call("/exec", {"command": "pwd", "workdir": "/tmp"})[1]["stdout"] == "/tmp\n"
late = call("/exec", {"command": "sleep 1000", "timeout": 1})[1]
assert late == {"exit_code": -1, "stdout": "", "stderr": "Command timed out", "timed_out": True}, late

# What is printed comes before the command ends.
line = "echo first; while [ ! -e /workspace/go ]; do sleep 0.05; done; echo second >&2; exit 7"
with open_url("/exec/stream", {"command": line}) as answer:
    assert answer.headers["content-type"] == "text/event-stream"
    stream = events(answer)
    assert next(stream) == {"type": "stdout", "data": "first\n"}
    open("/workspace/go", "w").close()
    assert list(stream) == [{"type": "stderr", "data": "second\n"}, {"type": "exit", "exit_code": 7}]

# A caller that goes away ends its command.
answer = open_url("/exec/stream", {"command": "echo $$; exec sleep 1000"})
pid = int(next(events(answer))["data"])
answer.close()
while os.path.exists(f"/proc/{pid}"):
    time.sleep(0.05)

# Files: below two folders alone, compared name by name.
assert call("/file/write", {"path": "deep/f", "content": "1"})[1] == {"success": True}
assert call("/file/write", {"path": "/workspace/deep/f", "content": "2", "mode": "a"})[1]["success"]
assert call("/file/read", {"path": "deep/f"})[1] == {"success": True, "content": "12"}
# A runtime with its own kernel has no such folder.
if os.path.exists("/mnt/user-data/outputs"):
    assert call("/file/write", {"path": "/mnt/user-data/outputs/f", "content": "3"})[1]["success"]
    assert open("/mnt/user-data/outputs/f").read() == "3"
os.symlink("/tmp", "/workspace/out")
for path in ["/tmp/f", "/workspaces/f", "/workspace/../tmp/f", "../tmp/f", "out/f", "/mnt/user-data/outputs2/f"]:
    told = call("/file/write", {"path": path, "content": ""})[1]
    assert not told["success"] and told["error"], (path, told)
    assert not os.path.exists("/tmp/f")
assert not call("/file/read", {"path": "/root/f"})[1]["success"]

# A page that a browser inside shows may not call.
assert call("/exec", {"command": "id"}, {**JSON, "origin": "http://127.0.0.1:2024"})[0] == 403
assert call("/exec", {"command": "id"}, {**JSON, "host": "evil.example"})[0] == 403
print("done")
