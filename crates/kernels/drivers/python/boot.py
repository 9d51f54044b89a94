import builtins, os
f = os.fdopen(3, "rb", 0, closefd=False)
n = int(f.readline())
b = b""
while len(b) < n: b += f.read(n - len(b))
p = b.decode().split("\n#### ")
p = {"PARTS": dict(x.split("\n", 1) for x in p[1:]), "__builtins__": dict(vars(builtins)), "__name__": "atoll", "": p[0]}
exec(compile(p.pop(""), "<atoll>", "exec"), p)
