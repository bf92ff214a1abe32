#!/usr/bin/env python3
"""Runs a command and prints the most anonymous memory that it had: `RssAnon` of /proc/PID/status, read every 2 ms, without what the files
that it maps take. Of the process itself, without its children; what it prints goes to the standard error output. Linux alone.

    python3 bench/peak_memory.py firelight forward MODEL --inputs inputs.safetensors --output outputs.safetensors
    python3 bench/peak_memory.py --small-pages firelight forward ...     # the kernel gives no pages of 2 MiB
    python3 bench/peak_memory.py inputs inputs.safetensors               # writes 4 ids, to have something to compute

The one line that it prints is JSON: the peak in MiB, seconds, how often memory was read, and the exit code, which is this program's, too.
"""

import ctypes
import json
import os
import struct
import subprocess
import sys
import time

PR_SET_THP_DISABLE = 41  # prctl(2)
INTERVAL = 0.002


def small_pages():
    """In the child, before it becomes the command, which inherits the setting."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_THP_DISABLE)")


def anonymous(status):
    """In bytes; none where the process has ended."""
    status.seek(0)
    for line in status:
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return None


def measure(command, prepare):
    begin = time.perf_counter()
    try:
        process = subprocess.Popen(command, stdout=sys.stderr, preexec_fn=prepare)
    except OSError as error:
        sys.exit(f"cannot run `{command[0]}`: {error.strerror}")
    peak = reads = 0
    with open(f"/proc/{process.pid}/status") as status:
        while process.poll() is None:
            found = anonymous(status)
            if found is not None:
                peak, reads = max(peak, found), reads + 1
            time.sleep(INTERVAL)
    seconds = time.perf_counter() - begin
    print(json.dumps({"peak_mib": round(peak / 2**20, 1), "seconds": round(seconds, 2), "reads": reads, "exit": process.returncode}))
    return process.returncode


def write_inputs(path):
    """The ids 0 to 3 as a safetensors file."""
    ids = struct.pack("<4q", *range(4))
    header = json.dumps({"input_ids": {"dtype": "I64", "shape": [1, 4], "data_offsets": [0, len(ids)]}}).encode()
    header += b" " * (-len(header) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header + ids)


def main():
    words = sys.argv[1:]
    prepare = None
    if words[:1] == ["--small-pages"]:
        prepare, words = small_pages, words[1:]
    if not words or not os.path.isdir("/proc/self"):
        sys.exit(__doc__)
    if words[0] == "inputs" and len(words) == 2:
        return write_inputs(words[1])
    sys.exit(measure(words, prepare))


if __name__ == "__main__":
    main()
