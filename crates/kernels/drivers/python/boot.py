import builtins, os
f = os.fdopen(3, "rb", 0, closefd=False)
n = int(f.readline())
b = b""
while len(b) < n: b += f.read(n - len(b))
p = b.decode().split("\n#### ")
g = {"__name__": "atoll", "__builtins__": dict(vars(builtins)), "PARTS": dict(x.split("\n", 1) for x in p[1:])}
exec(compile(p[0], "<atoll>", "exec"), g)
