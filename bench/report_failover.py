"""Figures of a cluster whose leaders die as Markdown.  No state."""

from __future__ import annotations

from bench.tables import table

Figures = dict[str, dict[str, float]]

FAILOVER_P50_MS_MAX = 1_000.0
IDLE_SHARE_MAX = 0.03


def failover_section(figures: Figures) -> str:
    """How long appends wait, then what idling costs."""
    note = (
        "Three nodes on this machine, each in its process with all roles, default settings; one "
        "log stream with three replicas. *Killed*: SIGKILL, then the time until the first append "
        "is acknowledged that was begun after it, by a client that appends every 10 ms all the "
        "time. *Append*: durable on two nodes of three and ordered by the metadata repository, one "
        "at a time. *Idle*: processor time of all three processes, and what they had written to "
        "the disk."
    )
    rows: list[tuple[str, str, str]] = []
    for name, found in figures.items():
        if name == "idle":
            rows += _idle_rows(found)
            continue
        goal = ""
        if "killed" in name:
            met = "yes" if found["p50_ms"] < FAILOVER_P50_MS_MAX else "no"
            goal = f"p50 < {FAILOVER_P50_MS_MAX:,.0f} ms: {met}"
        text = (
            f"p50 {found['p50_ms']:,.1f} ms, p99 {found['p99_ms']:,.1f} ms, longest "
            f"{found['max_ms']:,.1f} ms ({found['rounds']:,.0f} times)"
        )
        rows.append((name, text, goal))
    return f"{note}\n\n{table(('work', 'measured', 'goal'), rows)}"


def _idle_rows(found: dict[str, float]) -> list[tuple[str, str, str]]:
    share, written = found["cpu_share"], found["written_bytes"]
    return [
        (
            f"idle for {found['seconds']:.0f} s: processor",
            f"{share:.1%} of one core",
            f"< {IDLE_SHARE_MAX:.0%}: {'yes' if share < IDLE_SHARE_MAX else 'no'}",
        ),
        (
            f"idle for {found['seconds']:.0f} s: written",
            f"{written:,.0f} bytes",
            f"0: {'yes' if written == 0 else 'no'}",
        ),
    ]
