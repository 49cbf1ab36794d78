"""A real SLURM of two nodes on this machine, of Debian's packages, without accounting."""

import getpass
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from cli import ROOT

_MUNGE = ("socket", "key-file", "log-file", "pid-file", "seed-file")
#: Nodes share an address: their ports tell them apart. A requeued job may begin after
#: ``cred_expire`` seconds; ``urgent`` preempts.
CONF = """
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
MailProg=/bin/true
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SchedulerParameters=sched_interval=1,bf_interval=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
KillWait=1
SlurmdParameters=config_overrides
NodeName=node1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=4 RealMemory=8000
NodeName=node2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=4 RealMemory=8000
PartitionName=cpu Nodes=node1,node2 Default=YES PriorityTier=1
PartitionName=urgent Nodes=node1,node2 PriorityTier=9
"""
#: Of a job here: no GPU, and a share of the memory.
JOB = (
    "hydra=slurm",
    *("hydra.launcher.gpus_per_node=null", "hydra.launcher.cpus_per_task=1"),
    *("hydra.launcher.mem_gb=3", "hydra.launcher.timeout_min=15"),
)


def missing() -> list[str]:
    """Programs that are not installed."""
    needed = ("munged", "slurmctld", "slurmd", "sbatch")
    return [name for name in needed if shutil.which(name, path=search_path()) is None]


@dataclass
class Slurm:
    """The cluster, and what is done on its login node."""

    folder: Path
    environment: dict[str, str]
    started: list[subprocess.Popen] = field(default_factory=list)

    def run(self, *command: str) -> str:
        """The output of a command of SLURM, which must succeed."""
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, check=True, timeout=60
        )
        return done.stdout

    def sweep(self, script: str, *arguments: str) -> "Sweep":
        """Starts ``python <script> -m hydra=slurm ...``."""
        line = [sys.executable, str(ROOT / script), "-m", *JOB, *arguments]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        # A shell that starts the tests in the background has Ctrl-C ignored, which is inherited.
        process = subprocess.Popen(
            line,
            cwd=ROOT,
            env=self.environment,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            **pipes,
        )
        self.started.append(process)
        return Sweep(process)


@dataclass
class Sweep:
    process: subprocess.Popen

    def ended(self, status: int = 0, seconds: float = 600) -> tuple[str, str]:
        """Waits for the end; what was printed, and the errors."""
        printed, errors = self.process.communicate(timeout=seconds)
        assert self.process.returncode == status, printed + errors
        return printed, errors


def until(true, seconds: float = 300) -> None:
    """Waits until it is so."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.1)


@contextmanager
def running(folder: Path) -> Iterator[Slurm]:
    """Starts the daemons in an empty folder, and stops them and all jobs at the end."""
    for name in ("state", "spool-node1", "spool-node2"):
        (folder / name).mkdir()
    key = folder / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    conf = folder / "slurm.conf"
    ports = _free_ports(3)
    conf.write_text(
        CONF.format(host=socket.gethostname(), user=getpass.getuser(), folder=folder, ports=ports)
    )
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SLURM")}
    environment |= {"PATH": search_path(), "SLURM_CONF": str(conf), "PYTHONPATH": str(ROOT)}
    # The names of these nodes are no host names.
    environment |= {"MASTER_ADDR": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo"}
    cluster = Slurm(folder, environment)
    munge = [f"--{name}={folder}/munge.{name.split('-')[0]}" for name in _MUNGE]
    with ExitStack() as stack:

        def start(*command):
            log = stack.enter_context((folder / f"{command[0]}.out").open("ab"))
            stack.enter_context(_daemon(command, environment, log))

        start("munged", "--force", "--foreground", *munge)
        until((folder / "munge.socket").exists, 20)
        start("slurmctld", "-D", "-f", str(conf))
        for node in ("node1", "node2"):
            start("slurmd", "-D", "-N", node, "-f", str(conf))
        until(lambda: _idle(cluster) == 2, 60)
        yield cluster
        for process in cluster.started:
            process.kill()
        cluster.run("scancel", "--user", getpass.getuser())
        until(lambda: not cluster.run("squeue", "--noheader"), 60)


def search_path():
    return os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/sbin"])


def _idle(cluster):
    asked = ("sinfo", "--noheader", "--Node", "--partition=cpu", "--states=idle")
    answer = subprocess.run(asked, env=cluster.environment, capture_output=True, text=True)
    return len(answer.stdout.splitlines())


@contextmanager
def _daemon(command, environment, log):
    process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()


def _free_ports(count):
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
