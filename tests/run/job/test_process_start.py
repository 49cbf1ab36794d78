"""The ends of a command."""

import os
import subprocess
import sys

import pytest

SCRIPT = """
import atexit, sys
from ood_lab.run.commandline.process_start import quick_exit

class Package:
    def __del__(self):
        print("taken apart")

package = Package()
with quick_exit():
    atexit.register(print, "handler")
    print("line " * 2000)
    {end}
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("end", "status"),
    [
        ("pass", 0),
        pytest.param("sys.exit(0)", 0, marks=pytest.mark.slow),
        pytest.param("sys.exit()", 0, marks=pytest.mark.slow),
        pytest.param("sys.exit(3)", 3, marks=pytest.mark.slow),
        pytest.param("sys.exit('no')", 1, marks=pytest.mark.slow),
        pytest.param("1 / 0", 1, marks=pytest.mark.slow),
    ],
)
def test_the_process_ends_at_once_with_its_status_and_all_it_said(end, status):
    command = [sys.executable, "-c", SCRIPT.format(end=end)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == status
    assert done.stdout.split() == ["line"] * 2000 + ["handler"]
    assert ("ZeroDivisionError" in done.stderr) == (end == "1 / 0")


@pytest.mark.slow
def test_a_pool_of_processes_leaves_no_semaphores():
    """As a sweep by joblib does that Ctrl-C stops."""
    pytest.importorskip("joblib")
    code = """
import multiprocessing.util, sys
from ood_lab.run.commandline.process_start import quick_exit
from joblib.externals.loky import get_reusable_executor
with quick_exit():
    pool = get_reusable_executor(max_workers=1)
    pool.submit(abs, 1).result()
    sys.exit(130)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "")


@pytest.mark.slow
def test_nobody_reads_the_end():
    short = SCRIPT.format(end="pass").replace("2000", "2")  # all of it waits for the end
    process = subprocess.Popen(
        [sys.executable, "-c", short],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONUNBUFFERED": ""},
    )
    with process:
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 1
