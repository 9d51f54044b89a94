import os
f = os.fdopen(3, "rb", 0, closefd=False)
n = int(f.readline())
b = b""
while len(b) < n: b += f.read(n - len(b))
p = b.decode().split("\n#### ")
exec(compile(p[0], "<atoll>", "exec"), {"__name__": "atoll", "PARTS": dict(x.split("\n", 1) for x in p[1:])})
