"""A sandbox as tools of a LangChain agent (pip install langchain-core).

    from langchain_tools import sandbox_tools
    agent = create_agent(model, tools=sandbox_tools(sandbox))

The main part below calls the tools as an agent would."""

from langchain_core.tools import BaseTool, tool

from atoll_sandbox import AtollError, CommandResult, Display, Sandbox

LONGEST = 20_000


def shortened(text: str) -> str:
    """What a model can take: the beginning and the end of something long."""
    if len(text) <= LONGEST:
        return text
    return f"{text[: LONGEST // 2]}\n… {len(text) - LONGEST} characters left out …\n{text[-LONGEST // 2 :]}"


def told(ran: CommandResult) -> str:
    parts = [ran.stdout, ran.stderr and f"stderr:\n{ran.stderr}", "" if ran.ok else ran.summary()]
    return shortened("\n".join(part for part in parts if part) or "(no output)")


def sandbox_tools(sandbox: Sandbox) -> list[BaseTool]:
    """Tools that work in one sandbox. What goes wrong is an answer, so that the model can do better."""

    @tool
    def shell(command: str) -> str:
        """Run a shell command in the sandbox, in /workspace. Files stay from call to call."""
        try:
            return told(sandbox.commands.run(command, timeout=120))
        except AtollError as error:
            return f"error: {error}"

    @tool(response_format="content_and_artifact")
    def python(code: str) -> tuple[str, list[Display]]:
        """Run Python code in the sandbox. Variables stay from call to call; the last expression is the result."""
        try:
            ran = sandbox.run_code(code, timeout=120)
        except AtollError as error:
            return f"error: {error}", []
        failure = (ran.error and ran.error.traceback) or ran.summary()
        parts = [ran.stdout, ran.stderr, ran.text or "", "" if ran.success else failure]
        return shortened("\n".join(part for part in parts if part) or "(no output)"), ran.displays

    @tool
    def write_file(path: str, content: str) -> str:
        """Write a text file of the sandbox."""
        try:
            sandbox.files.write(path, content)
        except AtollError as error:
            return f"error: {error}"
        return f"wrote {path}"

    @tool
    def read_file(path: str) -> str:
        """Read a text file of the sandbox."""
        try:
            return shortened(sandbox.files.read(path))
        except AtollError as error:
            return f"error: {error}"

    return [shell, python, write_file, read_file]


if __name__ == "__main__":
    with Sandbox.create() as made:
        tools = {found.name: found for found in sandbox_tools(made)}
        print(tools["write_file"].invoke({"path": "greeting.txt", "content": "hello"}))
        print(tools["shell"].invoke({"command": "wc -c < greeting.txt"}))
        print(tools["python"].invoke({"code": "x = open('greeting.txt').read(); x.upper()"}))
        print(tools["python"].invoke({"code": "x * 2"}))
        print(tools["read_file"].invoke({"path": "missing.txt"}))
