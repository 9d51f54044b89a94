"""Prepare one sandbox, fork it three times, and try something else in each fork at the same time."""

import asyncio

from atoll_sandbox import AsyncSandbox


async def attempt(base: AsyncSandbox, factor: int) -> tuple[int, int]:
    async with await base.fork(labels={"factor": str(factor)}) as fork:
        # Each fork has the files of the first sandbox, and changes only its own.
        code = f"import json; print(sum(json.load(open('data.json'))) * {factor})"
        ran = await fork.commands.run(["python3", "-c", code], check=True)
        return factor, int(ran.stdout)


async def main() -> None:
    async with await AsyncSandbox.create(memory_mb=128) as base:
        await base.files.write("data.json", "[1, 2, 3]")
        results = await asyncio.gather(*(attempt(base, factor) for factor in (1, 10, 100)))
        for factor, total in results:
            print(f"factor {factor}: {total}")


asyncio.run(main())
