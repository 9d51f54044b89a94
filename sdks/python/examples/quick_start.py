"""Make a sandbox, run a command and code in it, and exchange files. ATOLL_URL and ATOLL_API_KEY name the server."""

from atoll_sandbox import Sandbox

with Sandbox.create(memory_mb=256, labels={"example": "quick-start"}) as sandbox:
    hello = sandbox.commands.run("echo hello from $(id -un)", check=True)
    print(hello.stdout, end="")

    sandbox.files.write("numbers.txt", "\n".join(str(n) for n in range(10)))
    sandbox.run_code("numbers = [int(line) for line in open('numbers.txt')]", check=True)
    print("sum:", sandbox.run_code("sum(numbers)").text)

    # Output as it comes, and a limit of time.
    sandbox.commands.run("for n in 1 2 3; do echo step $n; done", timeout=10, on_stdout=lambda text: print(text, end=""))
