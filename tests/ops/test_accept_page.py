"""The page of `dtrain accept` in a browser, as on a telephone and on a screen, light and dark: nothing fails, nothing is asked for, nothing is
wider than the window, and what is slow is marked. Without Chromium it is skipped.

usage: DTRAIN=... MPIEXEC=... test_accept_page.py WRONG_CLUSTER"""
import os
import re
import sys

from browser import windows
from checks import check, finish, new_folder, read, run

WRONG_CLUSTER = os.path.abspath(sys.argv[1])
new_folder()
run(WRONG_CLUSTER, "accept", "--short", "--run", "run", "--html", "page.html", ranks=4, code=1,
    env={"ONE_EACH": "1", "WRONG": "bandwidth gradients"})
page = read("page.html")
for width, text in windows(page, "accept"):
    check("dtrain accept: FAIL" in text and "9 of 11 passed, 2 failed" in text, f"{width} pixels: not the verdict")
# The failures: rank 1's gradients and node2's links, and on the first map three pairs of six, both ways.
cells = re.findall(r"<tr><td>node(\d)((?:<td class.*)+)", page)
failed = {(int(host), i) for host, row in cells for i, cell in enumerate(row.split("<td ")[1:]) if "FAIL" in cell}
check(failed == {(1, 3), (2, 5)}, f"{failed} fail")
maps = page.split("<figure")[1:]
check([m.count('class="cell odd"') for m in maps] == [6, 0], "pairs that are marked")
finish()
