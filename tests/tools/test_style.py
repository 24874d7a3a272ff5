"""What can be counted of CONTRIBUTING's style: the lengths of functions, files and lines, the files of a folder, and that a switch over an
enumeration of ours has no `default`, so that the compiler names the places that a new row needs, and that
streams of text end as they must. usage: test_style.py SOURCE_DIR"""
import os
import re
import statistics
import sys

SOURCE = ["base", "model", "checkpoint", "data", "dist", "cpu", "cuda", "train", "cli", "view", "report", "lab", "ops"]
FUNCTION_MEDIAN, FUNCTION_MOST, FILE_MOST, FOLDER_MOST, COLUMNS = 12, 60, 799, 24, 100
DATA = os.path.join("tests", "corpus")  # what fuzzing begins with, and no source
PRINTING = ["train", "cli", "report", "lab", "ops"]
STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
MARKUP = re.compile(r"</?(?:p|b|i|a|h\d|td|th|tr|table|thead|tbody|div|span|svg|path|rect|text|g|[uod]l|li|d[td]|pre|code|small|br|img|"
                    r"style|script|section|figure|details|summary|title|html|head|body|meta)\b[^<]*>|\\033\[|\\x1b\[|"
                    r"\bcolor:|style=|class=|\bd=\\\"M|<\??[a-z]+ +[a-z]+=", re.I)
WIDTH = re.compile(r"%[-+ ]*(?:[1-9]\d*|\*)(?:\.(?:\d+|\*))?[a-z]")
COMMENT = re.compile(r"/\*.*?\*/", re.S)
# Lines that are no result: a training's log, accept's rows as they come, the help, the indents of a configuration.
LINES = ("cli/sinks/", "ops/accept/accept.c", "cli/help.c", "cli/config/write.c")
ENUM = re.compile(r"\benum\s+\w*\s*\{([^}]*)\}")
SWITCH = re.compile(r"^( *)switch \(.*?^\1\}", re.M | re.S)


def texts(root, folders, endings):
    for top in folders:
        for folder, _, names in os.walk(os.path.join(root, top)):
            for name in sorted(names):
                if name.endswith(endings):
                    path = os.path.join(folder, name)
                    with open(path) as file:
                        yield os.path.relpath(path, root), file.read()


def full_folders(root):
    """What a folder of the source or of tests has more than a reader takes in."""
    for top in [*SOURCE, "tests"]:
        for folder, _, names in os.walk(os.path.join(root, top)):
            name, n = os.path.relpath(folder, root), sum(not file.endswith(".pyc") for file in names)
            if n > FOLDER_MOST and not name.startswith(DATA):
                yield f"{name}: {n} files (at most {FOLDER_MOST}: make a folder of those that belong together)"


def functions(text):
    """(name, number of lines) of each; as clang-format leaves them, only a function begins with a line that is "{"."""
    lines = text.split("\n")
    for i, line in enumerate(lines):
        if line == "{":
            first = i
            while first > 0 and re.search(r"[^;}/]$", lines[first - 1]) and not lines[first - 1].startswith("#"):
                first -= 1
            yield re.findall(r"(\w+)\(", " ".join(lines[first:i]))[:1], lines.index("}", i) - first + 1


def ours(text):
    """The enumerators in the text that have no name like DT_X."""
    return {name for names in ENUM.findall(text) for name in re.findall(r"\b[A-Z]\w+", names)}


def wrong_defaults(path, text, enumerators):
    for switch in SWITCH.finditer(text):
        labels = re.findall(rf"^{switch[1]}case (\w+)", switch[0], re.M)
        if f"\n{switch[1]}default:" in switch[0] and any(label.startswith("DT_") or label in enumerators for label in labels):
            yield f"{path}:{text.count(chr(10), 0, switch.start()) + 1}: a default in a switch over an enumeration of ours"


def wrong_strategies(path, text):
    """Nothing outside dist/strategy asks by name which strategy it is."""
    for found in re.finditer(r"\bDT_STRATEGY_(?!LIST\b)\w+", "" if path.startswith("dist/strategy/") else text):
        if not found[0].endswith("_H"):
            yield f"{path}:{text.count(chr(10), 0, found.start()) + 1}: {found[0]} (ask dt_strategy_summary or dt_roles_find)"


def wrong_streams(path, text):
    """A text in memory may have been cut short: only dt_text_close knows."""
    if text.count("open_memstream(") > len(re.findall(r"\bdt_text_close\(", text)):
        yield f"{path}: a stream of open_memstream ends otherwise than by dt_text_close"


def wrong_markup(path, text):
    """How a result looks is the business of view/ alone: no other file's strings have a tag, a colour, a column width or a path of SVG.
    cli/terminal.h moves a terminal's cursor."""
    if path.split("/")[0] not in PRINTING:
        return
    plain = COMMENT.sub(lambda comment: "\n" * comment[0].count("\n"), text)
    for i, line in enumerate(plain.split("\n"), 1):
        for string in STRING.findall("" if "#include" in line or "scanf" in line else line):
            marked = MARKUP.search(string) and path != "cli/terminal.h"
            if marked or (WIDTH.search(string) and not path.startswith(LINES)):
                yield f"{path}:{i}: {string} (fill a part of view/document.h)"


def main():
    root = sys.argv[1]
    source = dict(texts(root, SOURCE, (".c", ".h", ".cu", ".cuh")))
    lengths = [(path, *function) for path, text in source.items() for function in functions(text)]
    median = statistics.median(n for _, _, n in lengths)
    wrong = [f"{path}: {' '.join(name)} has {n} lines (at most {FUNCTION_MOST})" for path, name, n in lengths if n > FUNCTION_MOST]
    wrong += [f"the median of functions is {median:g} lines (at most {FUNCTION_MEDIAN})"] if median > FUNCTION_MEDIAN else []
    wrong += [f"{path} has {text.count(chr(10))} lines (at most {FILE_MOST})" for path, text in source.items()
              if text.count("\n") > FILE_MOST]
    wrong += [f"{path}:{i}: {len(line)} columns (at most {COLUMNS})" for path, text in source.items()
              for i, line in enumerate(text.split("\n"), 1) if len(line) > COLUMNS]
    wrong += full_folders(root)
    wrong += [line for path, text in source.items() for check in (wrong_strategies, wrong_streams, wrong_markup) for line in check(path, text)]
    enumerators = set().union(*map(ours, source.values()))
    wrong += [line for path, text in source.items() for line in wrong_defaults(path, text, enumerators)]
    print("\n".join(wrong) or f"{len(lengths)} functions, median {median:g} lines, longest {max(n for _, _, n in lengths)}")
    sys.exit(bool(wrong) or len(lengths) < 1000)


main()
