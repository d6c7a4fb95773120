"""A machine made of files: /proc, control groups and /dev/shm as a kernel would show them, for the host's readers."""

from dataclasses import dataclass, field
from pathlib import Path

from lightning_gpuprof.capture.host.sources import Roots

TICKS_PER_S = 100
PAGE = 4096
OWN = 1000


@dataclass
class FakeProcess:
    """Counters of one process, in seconds and bytes."""

    name: str = "python"
    state: str = "S"
    user_s: float = 0.0
    system_s: float = 0.0
    ended_children_s: float = 0.0
    started_s: float = 0.0
    minor_faults: int = 0
    major_faults: int = 0
    threads: int = 1
    rss_bytes: int = 0
    shared_bytes: int = 0
    io_wait_s: float = 0.0
    delay_s: float = 0.0
    main_thread_s: float = 0.0
    disk_read_bytes: int = 0
    call_read_bytes: int = 0
    voluntary: int = 0
    involuntary: int = 0
    command: bytes = b"python\0train.py\0"

    def stat(self, pid: int) -> str:
        fields = ["0"] * 50
        fields[0] = self.state
        fields[7], fields[9] = str(self.minor_faults), str(self.major_faults)
        fields[11], fields[12] = (str(round(s * TICKS_PER_S)) for s in (self.user_s, self.system_s))
        fields[13] = str(round(self.ended_children_s * TICKS_PER_S))
        fields[17], fields[19] = str(self.threads), str(round(self.started_s * TICKS_PER_S))
        fields[21], fields[39] = str(self.rss_bytes // PAGE), str(round(self.io_wait_s * TICKS_PER_S))
        return f"{pid} ({self.name}) {' '.join(fields)}\n"


@dataclass
class FakeMachine:
    """Folders below ``root`` that look like a kernel's; a file can be taken away or replaced at any time."""

    root: Path
    processes: dict[int, FakeProcess] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.roots = Roots(
            proc=self.root / "proc", sys=self.root / "sys", shm=self.root / "shm", root=self.root / "slash"
        )
        self.roots.shm.mkdir(parents=True)
        self.roots.cgroup.mkdir(parents=True)
        (self.root / "slash").mkdir()
        self.process(OWN)
        (self.proc / "self").symlink_to(str(OWN))
        self.cpus()
        self.put("proc/meminfo", "MemTotal: 1000 kB\nMemAvailable: 600 kB\nSwapTotal: 100 kB\nSwapFree: 90 kB\n")
        self.put("proc/loadavg", "1.50 1.00 0.50 2/300 77\n")
        self.put("proc/vmstat", "nr_free_pages 5\npswpin 0\npswpout 0\n")
        self.network(0, 0)
        for resource in ("cpu", "memory", "io"):
            self.pressure(resource, 0, 0)

    @property
    def proc(self) -> Path:
        return self.roots.proc

    def put(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def process(self, pid: int, process: FakeProcess | None = None) -> FakeProcess:
        """Write, or write again, all files of a process."""
        process = process or self.processes.get(pid) or FakeProcess()
        self.processes[pid] = process
        base = f"proc/{pid}"
        self.put(f"{base}/stat", process.stat(pid))
        self.put(f"{base}/statm", f"9999 {process.rss_bytes // PAGE} {process.shared_bytes // PAGE} 1 0 1 0\n")
        self.put(f"{base}/io", f"rchar: {process.call_read_bytes}\nwchar: 0\nread_bytes: {process.disk_read_bytes}\n")
        switches = (
            f"voluntary_ctxt_switches:\t{process.voluntary}\nnonvoluntary_ctxt_switches:\t{process.involuntary}\n"
        )
        self.put(f"{base}/status", f"Name:\t{process.name}\n{switches}")
        self.put(f"{base}/schedstat", f"{round(process.main_thread_s * 1e9)} {round(process.delay_s * 1e9)} 5\n")
        self.put(f"{base}/cmdline", process.command.decode())
        self.thread(pid, pid, process)
        return process

    def thread(self, pid: int, thread: int, like: FakeProcess) -> None:
        self.put(f"proc/{pid}/task/{thread}/stat", like.stat(thread))
        self.put(f"proc/{pid}/task/{thread}/schedstat", f"0 {round(like.delay_s * 1e9)} 5\n")
        children = self.proc / str(pid) / "task" / str(thread) / "children"
        if not children.exists():
            children.write_text("")

    def children(self, pid: int, *children: int) -> None:
        self.put(f"proc/{pid}/task/{pid}/children", "".join(f"{child} " for child in children))

    def end(self, pid: int) -> None:
        """The process is gone."""
        del self.processes[pid]
        (self.proc / str(pid)).rename(self.root / f"ended-{pid}-{len(list(self.root.iterdir()))}")

    def cpus(
        self,
        *busy_s: float,
        system_s: float = 0.0,
        idle_s: float = 0.0,
        io_wait_s: float = 0.0,
        irq_s: float = 0.0,
        steal_s: float = 0.0,
    ) -> None:
        """CPU time of each CPU in user mode; idle and other times are those of each CPU."""
        rows = [
            [round(s * TICKS_PER_S) for s in (busy, 0, system_s, idle_s, io_wait_s, irq_s, 0, steal_s, 0, 0)]
            for busy in (busy_s or (0.0, 0.0))
        ]
        lines = [f"cpu  {' '.join(str(sum(column)) for column in zip(*rows, strict=True))}"]
        lines += [f"cpu{number} {' '.join(map(str, row))}" for number, row in enumerate(rows)]
        self.put("proc/stat", "\n".join([*lines, "intr 1 2 3", "btime 5"]) + "\n")

    def network(self, received: int, sent: int) -> None:
        head = "Inter-| Receive | Transmit\n face |bytes packets |bytes packets\n"
        lines = f"    lo: 999 1 0 0 0 0 0 0 999 1 0 0 0 0 0 0\n  eth0: {received} 1 0 0 0 0 0 0 {sent} 1 0 0 0 0 0 0\n"
        self.put(f"proc/{OWN}/net/dev", head + lines)

    def pressure(self, resource: str, some_us: int, full_us: int, folder: str = "proc/pressure", end: str = "") -> None:
        tail = "avg10=0.00 avg60=0.00 avg300=0.00 total="
        self.put(f"{folder}/{resource}{end}", f"some {tail}{some_us}\nfull {tail}{full_us}\n")

    def v2(self, group: str = "/pod/app") -> str:
        """A mount of control groups of version 2 with this process in a group; gives the group's folder."""
        self.put(f"proc/{OWN}/cgroup", f"0::{group}\n")
        folder = f"sys/fs/cgroup{group}"
        for place in ("sys/fs/cgroup", folder):
            self.put(f"{place}/cgroup.procs", "")
        return folder
