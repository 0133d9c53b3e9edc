"""The processes below one, and their memory."""
import os


def descendants(pid):
    kids = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                stat = open(f"/proc/{entry}/stat").read()
            except OSError:
                continue
            kids.setdefault(int(stat[stat.rindex(")") + 2:].split()[1]), []).append(int(entry))
    todo, seen = [pid], []
    while todo:
        for kid in kids.get(todo.pop(), []):
            seen.append(kid)
            todo.append(kid)
    return seen


def pss_kib(pids, kind="Pss"):
    total = 0
    for pid in pids:
        try:
            for line in open(f"/proc/{pid}/smaps_rollup"):
                if line.startswith(f"{kind}:"):
                    total += int(line.split()[1])
        except OSError:
            pass
    return total


def held_kib(pids):
    """PSS, and the files in memory that the processes hold open without having mapped them."""
    files = {}
    for pid in pids:
        try:
            for fd in os.scandir(f"/proc/{pid}/fd"):
                if os.readlink(fd.path).startswith("/memfd:"):
                    found = os.stat(fd.path)
                    files[found.st_dev, found.st_ino] = found.st_blocks // 2
        except OSError:
            pass
    return pss_kib(pids) + max(sum(files.values()) - pss_kib(pids, "Pss_Shmem"), 0)
