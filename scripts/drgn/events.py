#!/usr/bin/env python3
"""Prints the events of all programs in a dump of a kernel with LTT.

Usage: drgn -c VMCORE scripts/drgn/events.py [--root ADDRESS]
       python3 scripts/drgn/events.py VMCORE [--root ADDRESS]

A second opinion: it shares with `usertrace extract` only the two headers that define the layout of memory,
include/uapi/linux/ltt.h and ltt_crash.h, and it needs neither symbols nor debug information. Each line is an event:
trace, process, channel, ring, clock, id, and the payload in hexadecimal. Unreadable parts are reported on standard error.

Only committed records are printed. Sub-buffers in which a writer died (LTT_PROTOCOL_SHARED) are read up to the first
incomplete record: `usertrace extract` gets more from them.
"""

import argparse
import collections
import struct
import sys

import drgn

ROOT, PAGE = 0x544F4F5254544CAB, 0x4745524944AB544C
FREE, TRACE, CHANNEL, PROCESS, BUFFER = range(5)
PRESENT, LOST_PAGE, ADDRESS = 0x1, 0x2, 0xFFFFFFFFFFFFF000
SUBBUF_MAGIC, SUBBUF_HEADER = 0x4C545453, 64
NONE, LOST, META, LONG, TIME, PAD = 0, 0xFFFB, 0xFFFC, 0xFFFD, 0xFFFE, 0xFFFF
DONE = 1 << 62
PROTOCOL_SHARED, PROTOCOL_COUNT = 1, 2
LOST_WORD = struct.pack("<Q", 0x4C54544C4F53FFFB)
CONTROL = 0

Channel = collections.namedtuple("Channel", "name buffers control size count rings stride protocol")


def complain(text):
    print(f"events.py: {text}", file=sys.stderr)


def words(data, offset, count=1):
    return struct.unpack_from(f"<{count}Q", data, offset)


def text(data):
    return data.split(b"\0")[0].decode("utf-8", "replace")


class Memory:
    """The physical memory in the dump."""

    def __init__(self, prog):
        self.prog = prog

    def read(self, address, length):
        try:
            return self.prog.read(address, length, physical=True)
        except drgn.FaultError:
            complain(f"{length} bytes at {address:#x} are not in the dump")
            return bytes(length)


class Area:
    """An area of a process: pages in a tree of tables (struct ltt_crash_tree)."""

    def __init__(self, memory, root, depth, page_size):
        self.memory, self.root, self.depth, self.page_size = memory, root, depth, page_size
        self.tables = {}

    def page(self, number):
        bits = (self.page_size // 8).bit_length() - 1
        word = self.root
        for level in reversed(range(self.depth)):
            if not word & PRESENT:
                return bytes(self.page_size)
            table = word & ADDRESS
            if table not in self.tables:
                self.tables[table] = self.memory.read(table, self.page_size)
            (word,) = words(self.tables[table], (number >> (bits * level)) % (1 << bits) * 8)
        if word & PRESENT:
            return self.memory.read(word & ADDRESS, self.page_size)
        return (LOST_WORD if word & LOST_PAGE else bytes(8)) * (self.page_size // 8)

    def read(self, offset, length):
        first, last = offset // self.page_size, (offset + length - 1) // self.page_size
        pages = b"".join(self.page(number) for number in range(first, last + 1))
        start = offset - first * self.page_size
        return pages[start : start + length]


def directory(memory, root):
    """The entries by kind, and in each kind by identity: the latest one of each."""
    magic, version_and_page, entry_and_clock, _sum, page = words(memory.read(root, 40), 0, 5)
    if magic != ROOT:
        sys.exit(f"events.py: there is no root page at {root:#x}")
    page_size, entry_size = version_and_page >> 32, entry_and_clock & 0xFFFFFFFF
    found, seen = {kind: {} for kind in range(5)}, set()
    while page and page not in seen:
        seen.add(page)
        data = memory.read(page, page_size)
        magic, following = words(data, 0, 2)
        if magic != PAGE:
            complain(f"there is no page of the directory at {page:#x}")
            break
        for at in range(256, page_size - entry_size + 1, entry_size):
            kind, _, serial = struct.unpack_from("<IIQ", data, at)
            body = data[at + 16 : at + entry_size]
            if kind == CHANNEL:
                key = struct.unpack_from("<QI", body)
            elif kind == BUFFER:
                key = words(body, 0, 2)
            else:
                key = words(body, 0)
            if kind != FREE and found[kind].get(key, (0,))[0] <= serial:
                found[kind][key] = serial, body
        page = following
    return page_size, {kind: {key: body for key, (_, body) in of.items()} for kind, of in found.items()}


def channel(body):
    fields = struct.unpack_from("<32sQQIIIIIII", body, 16)
    name, buffers, control, size, count, rings, stride, _scope, _mode, protocol = fields
    return Channel(text(name), buffers, control, size, count, rings, stride, protocol)


SCALARS = {"bool": 1, "c8": 1} | {f"{kind}{bits}": bits // 8 for kind in "uxsf" for bits in (8, 16, 32, 64)}


def field_length(kind, data, at):
    """The length of a field of a payload, by its type in LTT_ID_META."""
    kind = kind.split("{")[0]
    element, bracket, number = kind.partition("[")
    if element == "str":
        return data.index(0, at) + 1 - at
    if element == "fmt":
        return 0
    length = SCALARS[element.removesuffix("be")]
    if not bracket:
        return length
    if number == "]":
        return 4 + length * struct.unpack_from("<I", data, at)[0]
    return length * int(number[:-1])


class Descriptions:
    """Descriptions in a process's control channel: fields of events, and contexts of channels."""

    def __init__(self):
        self.events, self.contexts = {}, {}

    def add(self, line):
        head, *rest = line.split(" ", 1)
        if head.startswith("@"):
            self.contexts.setdefault(int(head[1:]), self.kinds(rest[0]))
            return
        if head.startswith(("$", "#", "+", "-")):
            # The command line, what a channel counts by, and what is loaded and unloaded.
            return
        described = rest[0].split(" ", 2)
        self.events.setdefault(int(head), self.kinds(described[2] if len(described) > 2 else ""))

    @staticmethod
    def kinds(described):
        return [field.split(" ")[0] for field in described.split(";") if field]

    def length(self, index, number, data, at):
        """The length of the payload at `at`: contexts, padded to 8 bytes, and then the fields."""
        begun = at
        for kind in self.contexts.get(index, ()):
            at += field_length(kind, data, at)
        at = begun + (at - begun + 7) // 8 * 8
        for kind in self.events[number]:
            at += field_length(kind, data, at)
        return at - begun


def records(data, of, position, end, base_time, length_of):
    """Committed records of a sub-buffer, from its header up to `end`: id, time, payload."""
    time, at = base_time, SUBBUF_HEADER
    while position + at < end:
        (word,) = words(data, at)
        number = word & 0xFFFF
        if number in (NONE, LOST, PAD):
            return
        time += ((word >> 16) - time) % (1 << 48)
        if number == TIME:
            (time,) = words(data, at + 8)
            at += 16
            continue
        if number == LONG:
            (second,) = words(data, at + 8)
            length, number = second & 0xFFFFFFFF, second >> 32 & 0xFFFF
            if length < 16 or at + length > of.size:
                complain(f"a record of {length} bytes at {position + at:#x}")
                return
            if second & DONE:
                yield number, time, data[at + 16 : at + length]
            elif of.protocol == PROTOCOL_SHARED:
                return
            at += length
            continue
        if number == META:
            length = data.index(0, at + 8) + 1 - at - 8
        else:
            length = length_of(number, data, at + 8)
        yield number, time, data[at + 8 : at + 8 + length]
        at += 8 + (length + 7) // 8 * 8


def ring(area, control, of, number, length_of):
    """Committed records of a ring, oldest first."""
    head, _lost, _time, _ids, claimed = words(control.read(of.control + number * of.stride, 40), 0, 5)
    ring_size = of.size * of.count
    last = head // of.size * of.size if head % of.size else head - of.size
    first = max(0, last + of.size - ring_size, (claimed + of.size - 1) // of.size * of.size)
    for position in range(first, head, of.size):
        data = area.read(of.buffers + number * ring_size + position % ring_size, of.size)
        stored, time, _lost, _cpu, magic = struct.unpack_from("<QQQII", data)
        if magic != SUBBUF_MAGIC or stored != position:
            complain(f"ring {number} of {of.name}: no sub-buffer of position {position:#x}")
            continue
        yield from records(data, of, position, min(head, position + of.size), time, length_of)


def print_events(memory, root):
    page_size, entries = directory(memory, root)
    for (process, generation), body in sorted(entries[BUFFER].items()):
        _, _, root_w, _, depth_w, _, root_c, _, depth_c, _ = struct.unpack_from("<QQQQIIQQII", body)
        area = Area(memory, root_w, depth_w, page_size)
        control = Area(memory, root_c, depth_c, page_size)
        trace, who = entries[TRACE].get((generation,)), entries[PROCESS].get((process,))
        name = text(trace[8:40]) if trace else f"trace-{generation}"
        pid = struct.unpack_from("<I", who, 16)[0] if who else 0
        channels = {key[1]: channel(body) for key, body in entries[CHANNEL].items() if key[0] == generation}
        described = Descriptions()
        for number in range(channels[CONTROL].rings if CONTROL in channels else 0):
            for kind, _, line in ring(area, control, channels[CONTROL], number, None):
                if kind == META:
                    described.add(text(line))
        for index, of in sorted(channels.items()):
            # Tables of counters are not events: usertrace extract and stat show them.
            if index == CONTROL or of.protocol == PROTOCOL_COUNT:
                continue
            for number in range(of.rings):
                length_of = lambda kind, data, at: described.length(index, kind, data, at)
                for kind, time, payload in ring(area, control, of, number, length_of):
                    exact = payload[: length_of(kind, payload, 0)]
                    print(name, pid, of.name, number, time, kind, exact.hex())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    is_script_of_drgn = "prog" in globals()
    if not is_script_of_drgn:
        parser.add_argument("vmcore", help="the dump")
    parser.add_argument("--root", type=lambda text: int(text, 0), help="physical address of the root page")
    args = parser.parse_args()
    if is_script_of_drgn:
        program = globals()["prog"]
    else:
        program = drgn.Program()
        program.set_core_dump(args.vmcore)
    root = args.root
    if root is None:
        lines = program["VMCOREINFO"].string_().decode().splitlines()
        said = [line.partition("=")[2] for line in lines if line.startswith("NUMBER(ltt_root)=")]
        if not said:
            sys.exit("events.py: the dump does not say where the root page is: see --root")
        root = int(said[0], 0)
    print_events(Memory(program), root)


if __name__ == "__main__":
    main()
