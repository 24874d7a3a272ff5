"""The output that a page shows is what its command prints: the same lines in the same order, whatever their numbers are.

usage: shown.py PAGE COMMAND OUTPUT, with the command as the page has it and its output in a file"""
import re
import socket
import sys


def shape(line):
    """A line with any number as #, this host as vm, and its processor left out: machines differ in these."""
    line = re.sub(r"\b%s\b" % re.escape(socket.gethostname()), "vm", line)
    line = re.sub(r"\bcpu [^,]*,", "cpu,", line)
    return " ".join(re.sub(r"\d[\d,]*(\.\d+)?", "#", line).split())


def samples(page):
    """Pairs of a command, the last of its block, and the block without a language that follows it under the same heading."""
    with open(page) as file:
        pieces = re.split(r"^```(.*)\n((?:.*\n)*?)```$", file.read(), flags=re.M)
    command = None
    for prose, kind, block in zip(pieces[::3], pieces[1::3], pieces[2::3]):
        command = None if re.search(r"^#", prose, re.M) else command
        if kind == "sh":
            commands = [re.sub(r"\s+#.*", "", line) for line in block.splitlines()]
            command = commands[-1] if "quickstart" not in block else commands[0]
        elif kind == "" and command:
            yield command, block.splitlines()


def missing(shown, output):
    """The first line that the output does not have behind those before it; None if it has all. A line that ends in ... is a beginning."""
    lines = iter(shape(line) for line in output.splitlines())
    for line in shown:
        wanted = shape(line)
        begins = wanted.endswith("...")
        wanted = wanted.removesuffix("...").rstrip()
        if not any(line == wanted or (begins and line.startswith(wanted)) for line in lines):
            return line
    return None


def main(page, command, path):
    shown = dict(samples(page))
    if command not in shown:
        return "%s: shows no output of %s" % (page, command)
    with open(path, errors="replace") as file:
        line = missing(shown[command], file.read())
    return line and "%s: %s does not print: %s" % (page, command, line)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
