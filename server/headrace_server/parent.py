"""Ends this process when its parent does, also in the middle of a long step.

A watcher thread waits on a pidfd of the parent, so the end is noticed at once, whatever killed it. PR_SET_PDEATHSIG
would be simpler but is wrong here: it fires when the parent's *thread* that started us ends, and launchers start
processes from short-lived threads. The parent's id is polled only where the kernel has no pidfd.
"""

import os
import select
import threading
import time
from collections.abc import Callable

EXIT_CODE = 0  # the parent is gone: nobody is left to call this a failure
POLL_SECONDS = 0.5


def exit_with(parent_pid: int, last: Callable[[], None]) -> None:
    """Start the watcher. The process exits within POLL_SECONDS of the parent's end, without cleanup but for `last`."""
    threading.Thread(target=_watch, args=(parent_pid, last), name="parent-watcher", daemon=True).start()


def _watch(parent_pid: int, last: Callable[[], None]) -> None:
    try:
        _wait_on_pidfd(parent_pid)
    except OSError:
        _wait_by_polling(parent_pid)
    last()
    # The model thread may be deep in a kernel: no orderly shutdown would end in time. Tensors need no cleanup.
    os._exit(EXIT_CODE)


def _wait_on_pidfd(pid: int) -> None:
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return  # it ended before we looked
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    poll.poll()


def _wait_by_polling(pid: int) -> None:
    while True:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        except PermissionError:
            pass  # alive, and somebody else's
        time.sleep(POLL_SECONDS)
