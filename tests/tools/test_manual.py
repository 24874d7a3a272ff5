"""The documents that scripts/make-docs generates are those of this program; they have every command, option and key, and files.md every
field of a record; each option of a command stands in its help; and mandoc and groff, where they are installed, have nothing to say of the manual pages.

usage: DTRAIN=... MPIEXEC=... test_manual.py"""
import json
import re
import shutil

from checks import DTRAIN, SOURCE, check, dtrain, finish, read, run

PAGES = [f"{SOURCE}/docs/man/{name}" for name in ("dtrain.1", "dtrain-config.5")]

done = run(f"{SOURCE}/scripts/make-docs", "--check", DTRAIN)
check(done.returncode == 0, done.stdout, done.stderr)
tables = json.loads(dtrain("help", "--json").stdout)
program, config = (read(page).replace("\\-", "-") for page in PAGES)
for command in tables["commands"]:
    check(f"\n.SS {command['name']}\n" in program, "dtrain.1 lacks the command", command["name"])
    text = dtrain("help", *command["name"].split()).stdout
    for option in command["options"]:
        check(f"\n  --{option['name']}" in text, f"help {command['name']} lacks --{option['name']}")
for option in tables["options"]:
    check(f"\n\\fB--{option['name']}\\fR" in program, f"dtrain.1 lacks --{option['name']}")
for key in tables["config"] + [key for layer in tables["layers"] for key in layer["keys"]]:
    check(f"\n\\fB{key['key']}\\fR\n" in config, "dtrain-config.5 lacks", key["key"])
check(len(tables["options"]) > 30 and len(tables["config"]) > 60 and len(tables["layers"]) > 10, "tables are short")
# The records whose fields files.md has by hand: every field that fields.c writes, and no other.
pages = {section.split("\n")[0]: section for section in read(f"{SOURCE}/docs/files.md").split("\n## ")}
parts = dict(re.findall(r"(?s)/\* ---- (.+?) \*/(.*?)(?=/\* ---- |\Z)", read(f"{SOURCE}/cli/sinks/fields.c")))
for part, title in ("a start", '"type": "run"'), ("a step, and what its samples were", '"type": "audit"'), ("the end", "summary.json"):
    rows = [row for name, section in pages.items() if title in name for row in re.findall(r"^\| `.*", section, re.M)]
    written, fields = set(re.findall(r'"([a-z]\w+)"', parts[part])), {row.split("`")[1] for row in rows}
    check(fields and fields <= written <= set(re.findall(r"`(\w+)`", " ".join(rows))), f"files.md, {title}: {fields ^ written}")
for page in PAGES:
    for command in ["mandoc", "-T", "lint", "-W", "error"], ["groff", "-ww", "-man", "-Tutf8", "-Kutf8", "-z"]:
        if shutil.which(command[0]):
            done = run(*command, page)
            check(not done.stdout + done.stderr, f"{command[0]} complains about {page}: {done.stdout}{done.stderr}")
finish()
