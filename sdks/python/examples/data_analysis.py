"""Analyse a table in a sandbox and save the plot that the code shows."""

import sys
from pathlib import Path

from atoll_sandbox import Sandbox

CSV = "month,sales\n" + "\n".join(f"{month},{100 + month * month}" for month in range(1, 13))

CODE = """
import matplotlib.pyplot as plt
import pandas as pd
table = pd.read_csv("sales.csv")
plt.bar(table["month"], table["sales"])
plt.title("Sales by month")
plt.show()
int(table["sales"].sum())
"""

target = Path(sys.argv[1] if len(sys.argv) > 1 else "sales.png")
with Sandbox.create(memory_mb=512) as sandbox:
    sandbox.files.write("sales.csv", CSV)
    result = sandbox.run_code(CODE, timeout=120, check=True)
    print("total:", result.text)
    result.images[0].save(target)
    print("plot:", target, target.stat().st_size > 1000)
