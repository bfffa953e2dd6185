"""How the report of an audit looks: on paper, on a phone, by day and by night.  No state."""

from __future__ import annotations

from typing import Final

STYLE: Final = """
:root {
  color-scheme: light dark;
  --ground: #fbfbfa; --paper: #ffffff; --ink: #1c2024; --quiet: #5d666f; --line: #dfe3e6;
  --there: #2f7d6d; --gone: #c9d3d6; --lost: #c62828; --doubled: #e08a00; --behind: #7b8fd4;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #14171a; --paper: #1b1f23; --ink: #e7eaec; --quiet: #9aa4ad; --line: #31373d;
    --there: #4fb39e; --gone: #3c464c; --lost: #ff6b6b; --doubled: #ffb74d; --behind: #93a5e8;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 1.5rem clamp(0.75rem, 3vw, 2.5rem) 4rem; max-width: 76rem;
  background: var(--ground); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif;
}
h1 { font-size: 1.7rem; margin: 0 0 0.25rem; line-height: 1.25; }
h2 { font-size: 1.15rem; margin: 2.2rem 0 0.6rem; }
p { margin: 0.3rem 0; color: var(--quiet); }
code { font: 0.92em ui-monospace, "SF Mono", Menlo, Consolas, monospace; overflow-wrap: anywhere; }
.verdict { border-radius: 0.4rem; padding: 0.05em 0.5em; color: #fff; white-space: nowrap; }
.verdict.good { background: #2f7d6d; }
.verdict.partly { background: #8a5a00; }
.verdict.bad { background: #c62828; }
strong.bad { color: var(--lost); }
dl { display: grid; grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr)); gap: 0.6rem; }
dl div {
  background: var(--paper); border: 1px solid var(--line); border-radius: 0.5rem;
  padding: 0.5rem 0.75rem;
}
dt { color: var(--quiet); font-size: 0.82rem; }
dd { margin: 0; font-size: 1.25rem; font-variant-numeric: tabular-nums; }
.wide {
  overflow-x: auto; border: 1px solid var(--line); border-radius: 0.5rem;
  background: var(--paper);
}
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: 0.4rem 0.7rem; text-align: left; vertical-align: top; }
th { color: var(--quiet); font-weight: 600; font-size: 0.82rem; white-space: nowrap; }
td { border-top: 1px solid var(--line); min-width: 4rem; }
td:last-child:not(.number) { min-width: 16rem; overflow-wrap: anywhere; }
.number { text-align: right; white-space: nowrap; }
figure { margin: 0.9rem 0; }
figcaption { margin-bottom: 0.3rem; overflow-wrap: anywhere; }
svg { display: block; width: 100%; }
svg.strip { border-radius: 0.25rem; shape-rendering: crispEdges; }
svg.bars { max-width: 46rem; height: auto; }
svg .label { font-size: 11px; text-anchor: end; fill: var(--quiet); }
.there { fill: var(--there); background: var(--there); }
.gone { fill: var(--gone); background: var(--gone); }
.lost { fill: var(--lost); background: var(--lost); }
.doubled { fill: var(--doubled); background: var(--doubled); }
.behind { fill: var(--behind); background: var(--behind); }
.legend span { margin-right: 1.1rem; white-space: nowrap; }
.legend i {
  display: inline-block; width: 0.8em; height: 0.8em; border-radius: 0.2em; margin-right: 0.4em;
}
@media print { .wide { overflow: visible; } body { max-width: none; } }
"""
