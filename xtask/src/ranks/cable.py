"""A cable between two network namespaces that delays every frame: python3 cable.py MILLISECONDS NAMESPACE NAMESPACE

Each namespace gets a device `eth0`; frames are copied between the two until the program is ended or its standard input closes, which it does
where whoever started it was killed. Kernels without netem can be tested so.
Prints a line when both devices are there. Needs root and /dev/net/tun.
"""

import collections
import fcntl
import os
import select
import struct
import subprocess
import sys
import time

TUNSETIFF = 0x400454CA  # of linux/if_tun.h
TAP_WITHOUT_HEADER = 0x0002 | 0x1000  # IFF_TAP | IFF_NO_PI
FRAME = 65536


def end_of_cable(name, namespace):
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", name.encode(), TAP_WITHOUT_HEADER))
    subprocess.run(["ip", "link", "set", name, "netns", namespace], check=True)
    subprocess.run(["ip", "-n", namespace, "link", "set", name, "name", "eth0"], check=True)
    return device


def arrive(device, frame):
    try:
        os.write(device, frame)
    except OSError:
        pass  # The device is down, as a cable that is cut: TCP sends the frame again.


def main():
    delay = float(sys.argv[1]) / 1000
    ends = [end_of_cable(f"cable{os.getpid() % 100000}{side}", name) for side, name in zip("ab", sys.argv[2:4], strict=True)]
    other = {ends[0]: ends[1], ends[1]: ends[0]}
    under_way = collections.deque()  # when a frame arrives, where, and its bytes
    print("the cable is there", flush=True)
    while True:
        wait = max(0.0, under_way[0][0] - time.monotonic()) if under_way else None
        for device in select.select([sys.stdin, *ends], [], [], wait)[0]:
            if device is sys.stdin:
                return
            try:
                under_way.append((time.monotonic() + delay, other[device], os.read(device, FRAME)))
            except OSError:
                time.sleep(0.01)  # down
        while under_way and under_way[0][0] <= time.monotonic():
            arrive(*under_way.popleft()[1:])


main()
