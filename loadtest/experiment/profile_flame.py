"""The flame graph of a profile: one SVG file, its frames coloured by the class that a stack ending there has.

Width is share of samples, a frame stands on its caller.  The stem that nearly all samples share (interpreter
start, the command line) is left out, and so are reference-counting helpers of C code that have callees.
A frame's tooltip holds its whole name, share and class; the file needs nothing from outside.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from html import escape

from loadtest.experiment.profile_classes import CLASSES, classify
from loadtest.experiment.profile_stacks import Stack

__all__ = ["draw_flame"]

_WIDTH, _MARGIN, _ROW, _HEAD = 1400, 12, 19, 74
_CHARACTER = 6.6
_NARROWEST = 0.4  # px; a thinner frame can't be seen
_STEM_SHARE = 0.97

_STYLE = """\
:root { color-scheme: light dark; --page: #fcfcfb; --ink: #1d2125; --muted: #656c75; --on: #14171a;
  --recv: #8fc3ea; --framing: #b9c0ee; --policy: #f4ab73; --send: #86cfb4; --loop: #e6d27c; --rest: #cfd3d8; }
@media (prefers-color-scheme: dark) { :root { --page: #15181b; --ink: #e6e8ea; --muted: #9aa2ab;
  --recv: #58a4dd; --framing: #8f9ce8; --policy: #ee8f48; --send: #3fb78d; --loop: #cdb340; --rest: #8b939c; } }
svg { background: var(--page); font: 11px ui-monospace, SFMono-Regular, Menlo, Consolas, "Liberation Mono", monospace; }
text { fill: var(--on); } .title { fill: var(--ink); font-size: 15px; } .key { fill: var(--ink); font-size: 12px; }
.sub { fill: var(--muted); font-size: 12px; }
rect { stroke: var(--page); stroke-width: 0.6; } g:hover > rect { stroke: var(--ink); stroke-width: 1.4; }
"""


@dataclass(slots=True)
class _Node:
    frame: str
    samples: int = 0
    callees: dict[str, _Node] = field(default_factory=dict)


def draw_flame(stacks: Iterable[Stack], title: str, subtitle: str) -> str:
    """The SVG document; without a single sample it says so."""
    trimmed = _without_stem([(_shown(stack.frames), stack.count) for stack in stacks])
    root = _tree(trimmed)
    height = _HEAD + max(1, _depth(root)) * _ROW + 2 * _MARGIN
    scale = (_WIDTH - 2 * _MARGIN) / max(1, root.samples)
    body = list(_drawn(root, [], _MARGIN, height - _MARGIN, scale, max(1, root.samples)))
    if not root.samples:
        body = [f'<text class="sub" x="{_MARGIN}" y="{_HEAD + _ROW}">no samples</text>']
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" '
        f'height="{height}" role="img" aria-label="{escape(title)}">\n<style>{_STYLE}</style>'
    )
    titles = [
        f'<text class="title" x="{_MARGIN}" y="24">{escape(title)}</text>',
        f'<text class="sub" x="{_MARGIN}" y="43">{escape(subtitle)}</text>',
    ]
    return "\n".join([head, *titles, *_key(), *body, "</svg>\n"])


def _key() -> Iterator[str]:
    x = float(_MARGIN)
    for kind, meaning in CLASSES.items():
        box = f'<rect x="{x:.0f}" y="53" width="12" height="12" fill="var(--{kind})"/>'
        yield f"<g><title>{escape(meaning)}</title>{box}"
        yield f'<text class="key" x="{x + 17:.0f}" y="63">{kind}</text></g>'
        x += 17 + len(kind) * 7.4 + 18


def _shown(frames: Sequence[str]) -> tuple[str, ...]:
    """Without doubled frames (a Cython method and its wrapper) and without reference counting on the way."""
    kept: list[str] = []
    for frame in frames:
        inner = frame.endswith("(object.h)") and frame != frames[-1]
        if not inner and (not kept or kept[-1] != frame):
            kept.append(frame)
    return tuple(kept)


def _without_stem(stacks: Sequence[tuple[tuple[str, ...], int]]) -> list[tuple[tuple[str, ...], int]]:
    """The stacks from the last frame on that nearly every sample goes through."""
    total = sum(count for _, count in stacks)
    stem = 0
    while True:
        seen: dict[tuple[str, ...], int] = {}
        for frames, count in stacks:
            seen[frames[: stem + 1]] = seen.get(frames[: stem + 1], 0) + count
        common = [start for start, count in seen.items() if count >= _STEM_SHARE * total and len(start) == stem + 1]
        if not common:
            break
        stem += 1
    cut = max(0, stem - 1)
    return [(frames[cut:] if len(frames) > cut else frames[-1:], count) for frames, count in stacks]


def _tree(stacks: Iterable[tuple[tuple[str, ...], int]]) -> _Node:
    root = _Node("")
    for frames, count in stacks:
        node = root
        node.samples += count
        for frame in frames:
            node = node.callees.setdefault(frame, _Node(frame))
            node.samples += count
    return root


def _depth(node: _Node) -> int:
    return 1 + max(map(_depth, node.callees.values())) if node.callees else 0


def _drawn(node: _Node, path: list[str], x: float, bottom: float, scale: float, total: int) -> Iterator[str]:
    """The callees of ``node`` on top of it, side by side by name, and theirs on them."""
    for frame in sorted(node.callees):
        callee = node.callees[frame]
        width = callee.samples * scale
        if width >= _NARROWEST:
            kind, _ = classify([*path, frame])
            label = f"{frame}: {callee.samples:,} samples, {callee.samples / total:.1%}, {kind}"
            yield f"<g><title>{escape(label)}</title>"
            yield (
                f'<rect x="{x:.2f}" y="{bottom - _ROW:.0f}" width="{width:.2f}" height="{_ROW}" fill="var(--{kind})"/>'
            )
            text = _fitting(frame, width)
            if text:
                yield f'<text x="{x + 4:.2f}" y="{bottom - 6:.0f}">{escape(text)}</text>'
            yield "</g>"
            yield from _drawn(callee, [*path, frame], x, bottom - _ROW, scale, total)
        x += width


def _fitting(frame: str, width: float) -> str:
    """As much of the name as fits: with its file, without it, cut, nothing."""
    room = int((width - 8) / _CHARACTER)
    name = frame.partition(" (")[0]
    if len(frame) <= room:
        return frame
    if len(name) <= room:
        return name
    return f"{name[: room - 1]}…" if room >= 4 else ""
