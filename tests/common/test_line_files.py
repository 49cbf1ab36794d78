"""Files that grow: whole lines, one header, whatever is killed."""

import fcntl
import os
import threading
import time

import pandas as pd

from ood_lab.common.line_files import append_lines, create_with
from ood_lab.run.job.sweeps import record_failure


def test_a_line_begins_where_a_line_can_begin(tmp_path):
    file = tmp_path / "grows.txt"
    create_with(file, "first\n")
    create_with(file, "never written\n")
    with file.open("a") as stream:
        stream.write("cut sh")  # a full disk
    append_lines(file, ["second", "third"])
    assert file.read_text() == "first\ncut sh\nsecond\nthird\n"
    assert [p.name for p in tmp_path.iterdir()] == ["grows.txt"]  # nothing is left behind


def test_a_file_has_the_rights_that_others_get(tmp_path):
    create_with(tmp_path / "made.txt", "")
    (tmp_path / "touched.txt").touch()
    modes = {(tmp_path / name).stat().st_mode for name in ("made.txt", "touched.txt")}
    assert len(modes) == 1


def test_one_process_makes_the_file(tmp_path):
    file = tmp_path / "sub" / "made.txt"
    ready = threading.Barrier(8)

    def make(number):
        ready.wait()
        create_with(file, f"{number}\n" * 100)

    threads = [threading.Thread(target=make, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(file.read_text().split())) == 1
    assert os.listdir(file.parent) == ["made.txt"]


def test_failures_of_jobs_side_by_side_have_one_header(tmp_path):
    """The second job opens the table while the first one, under the lock, begins it."""
    file = tmp_path / "failures.csv"
    row = "time,overrides,folder,error,traceback\nnow,a=1,,first,Traceback\n"
    with file.open("a") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        arguments = (file, ["a=2"], None, ValueError("the second,\nwith a comma"))
        job = threading.Thread(target=record_failure, args=arguments)
        job.start()
        time.sleep(0.3)  # long enough to open the file and wait
        assert job.is_alive()
        other.write(row)
    job.join(timeout=10)
    table = pd.read_csv(file)
    assert table["error"].tolist() == ["first", "the second, with a comma"]
    assert table["overrides"].tolist() == ["a=1", "a=2"]
