"""A datastore with a replica: every committed epoch is on another machine, too.

Run it with ``python examples/datastore.py``.  It starts ``tidelog replica`` as a process of its
own, writes in epochs, waits until each is safe on both sides, stores a BLOB, stops both, and makes
a datastore of the replica's files.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tidelog import Datastore, Notice, WriteVersion


def say(text: str) -> None:
    print(text, flush=True)


def start_replica(directory: Path) -> tuple[subprocess.Popen[str], str]:
    """A replica service, and the address at which it says that it is ready."""
    command = [sys.executable, "-m", "tidelog", "replica", "--data", str(directory)]
    service = subprocess.Popen(
        [*command, "--listen", "tcp://127.0.0.1:0"], stdout=subprocess.PIPE, text=True
    )
    if service.stdout is None:
        raise SystemExit("the service has no output")
    line = service.stdout.readline()
    if not line.startswith("ready "):
        raise SystemExit(f"the replica did not start: {line}")
    return service, line.removeprefix("ready ").strip()


def write(directory: Path, replica: str) -> None:
    """Transactions in epochs, as a database would write them."""
    notices: list[Notice] = []
    store = Datastore(directory, replicas=[replica])
    accounts, audit = store.create_channel(), store.create_channel()
    store.on_notice(notices.append)
    with store:
        store.ready()
        store.switch_epoch(1)
        begin = time.perf_counter()
        for epoch in range(1, 201):
            with accounts.session() as session:
                for number in range(5):
                    name = b"account-%d" % (epoch * 5 % 100 + number)
                    session.add_entry(1, name, b"%d EUR" % epoch, WriteVersion(epoch, number))
            with audit.session() as session:
                session.add_entry(2, b"last change", b"epoch %d" % epoch, WriteVersion(epoch))
            store.switch_epoch(epoch + 1)
            store.wait_for(epoch)
        seconds = time.perf_counter() - begin
        say(f"   200 epochs, 400 log sessions, 1,200 entries in {seconds:.2f} s; each epoch was")
        say("   durable on both sides before the next began")
        with store.blob_pool() as pool, accounts.session() as session:
            contract = pool.register_data(b"a long contract " * 200_000)
            session.add_entry(3, b"contract", b"", WriteVersion(201), blobs=[contract])
        store.switch_epoch(202)
        store.wait_for(201)
        say(f"   notices: {len(notices)}; the last one: {notices[-1]}")
        show_spans(store)


def show_spans(store: Datastore) -> None:
    say("\n2. How long each step took, in microseconds:")
    say(f"   {'span':<15} {'count':>7} {'p50':>9} {'p99':>9} {'mean':>9}")
    for row in store.spans():
        times = f"{row.p50_us:>9.1f} {row.p99_us:>9.1f} {row.mean_us:>9.1f}"
        say(f"   {row.span:<15} {row.count:>7} {times}")


def restore(source: Path, target: Path) -> None:
    """A datastore from the files of the replica."""
    command = [sys.executable, "-m", "tidelog", "restore", "--from", str(source)]
    subprocess.run([*command, "--to", str(target)], check=True)
    store = Datastore(target, replicas=[])
    store.create_channel()
    with store:
        store.ready()
        entries = list(store.entries())
        account = store.get(1, b"account-7")
        say(f"   epoch {store.last_epoch}: {len(entries)} keys; account-7 is {account}")
        contract = store.get(3, b"contract")
        if contract is None:
            raise SystemExit("the contract is lost")
        with store.open_blob(contract.blobs[0]) as reader:
            say(f"   the contract has {reader.size:,} bytes: {reader.read_at(0, 15)!r}")


def main() -> None:
    root = Path(tempfile.mkdtemp(prefix="tidelog-"))
    service, address = start_replica(root / "replica")
    try:
        say(f"1. A datastore in {root / 'master'}, with a replica at {address}")
        write(root / "master", address)
        service.terminate()
        say(f"\n3. The replica stopped in order (exit code {service.wait(30)}). Its files:")
        restore(root / "replica", root / "restored")
    finally:
        service.kill()
        service.wait()
        if service.stdout is not None:
            service.stdout.close()
        shutil.rmtree(root)
    say("\nNext: docs/datastore.md, and docs/sessions.md for the protocol.")


if __name__ == "__main__":
    main()
