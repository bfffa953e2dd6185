"""A process that has imported all that masters and replicas need, and forks them.

An interpreter takes most of a second to import it all, a fork some milliseconds; what is forked is
a process like any other, with the arguments of its program, and can be killed like one.

Orders come as JSON lines over a socket, each with the descriptors of standard output and error.
The answer to START is the process id, the answer to WAIT the exit code (negative: the signal).
"""

from __future__ import annotations

import os
import runpy
import signal
import socket
import sys
import traceback

import msgspec

import tests.pair.master
import tests.pair.small_replica

ORDER_BYTES_MAX = 1 << 16
IMPORTED = (tests.pair.master, tests.pair.small_replica)


class Order(msgspec.Struct):
    """Start a module as a program, or wait for a process."""

    module: str = ""
    arguments: list[str] = []
    wait_for: int = 0


def run_program(order: Order, descriptors: list[int]) -> None:
    """Be the program; never returns."""
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number, descriptor in enumerate(descriptors, 1):
            os.dup2(descriptor, number)
        sys.argv = [order.module, *order.arguments]
        sys.modules.pop(order.module, None)
        runpy.run_module(order.module, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main(orders: socket.socket) -> None:
    while True:
        data, descriptors, _, _ = socket.recv_fds(orders, ORDER_BYTES_MAX, 2)
        if not data:
            return
        order = msgspec.json.decode(data, type=Order)
        if order.wait_for:
            _, status = os.waitpid(order.wait_for, 0)
            answer = os.waitstatus_to_exitcode(status)
        else:
            answer = os.fork()
            if answer == 0:
                orders.close()
                run_program(order, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        orders.sendall(b"%d\n" % answer)


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
