"""Stopped sandboxes as records alone: copies of one that is there. Arguments: the database, its id, how many."""
import sqlite3
import sys

path, of, count = sys.argv[1:]
database = sqlite3.connect(path, timeout=30)
names = [name for (name,) in database.execute("SELECT name FROM pragma_table_info('sandboxes') WHERE name <> 'seq'")]
changed = {
    "id": "randomblob(16)",
    "volume": "randomblob(16)",
    "container": "NULL",
    "status": "'stopped'",
    "session_key": "NULL",
    "created_at": "created_at - 1000 * n",
}
values = [changed.get(name, name) for name in names]
database.execute(
    f"""WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {int(count)})
    INSERT INTO sandboxes ({",".join(names)}) SELECT {",".join(values)} FROM sandboxes, numbers WHERE hex(id) = ?""",
    (of.replace("-", "").upper(),),
)
database.commit()
