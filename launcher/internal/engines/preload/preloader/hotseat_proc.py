"""Reads what the kernel tells about a process."""


def read_file(path):
    with open(path, "rb") as file:
        return file.read()


def stat_field(process, number):
    """Returns a field of /proc/…/stat by its number in proc_pid_stat(5), from 3 on."""
    return int(read_file(f"/proc/{process}/stat").rpartition(b")")[2].split()[number - 3])
