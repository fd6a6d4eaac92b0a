"""Traces of experts as `colizigctl forward --trace-experts` writes them (docs/experts.md)."""
import collections
import json
import lzma

FORMAT, VERSION = "colizig-expert-trace", 1
NUMBERS = ["version", "layers", "moe_layers", "experts", "experts_per_token", "expert_bytes", "slots",
           "reads_in_flight"]
SAME = ["family", "layers", "moe_layers", "experts", "experts_per_token", "reads_in_flight"]

# experts: rising; picks: rows that chose each; layer counts those with experts from 0.
Order = collections.namedtuple("Order", "prefill layer rows experts picks")
# head and end as written; file names where it came from.
Trace = collections.namedtuple("Trace", "file head orders end")


class BadTrace(Exception):
    pass


def lines_of(path):
    """(number, text) of each line; xz is known by its first bytes."""
    with open(path, "rb") as raw:
        packed = raw.read(6) == b"\xfd7zXZ\x00"
    with (lzma.open if packed else open)(path, "rt", encoding="utf-8") as lines:
        yield from enumerate(lines, 1)


def is_number(value, least=0):
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def plain(text):
    """A stranger's name for a terminal, which is not to be moved by it."""
    return "".join(c if c.isprintable() else "?" for c in text)


def read_head(line):
    if line.get("format") != FORMAT:
        raise BadTrace(f'no head of a trace ("format": "{FORMAT}")')
    if line.get("version") != VERSION:
        raise BadTrace(f"version {line.get('version')} of the format, not {VERSION}")
    for name in NUMBERS:
        if not is_number(line.get(name), 1):
            raise BadTrace(f'the head has no "{name}"')
    for name in ("model", "family"):
        if not isinstance(line.get(name), str):
            raise BadTrace(f'the head has no "{name}"')
        line[name] = plain(line[name])
    return line


def read_order(line, head):
    experts, rows = line.get("experts"), line.get("rows")
    if line.get("kind") not in ("prefill", "decode"):
        raise BadTrace('an order without "kind"')
    if not is_number(line.get("layer")) or line["layer"] >= head["layers"]:
        raise BadTrace(f'"layer" is no number below {head["layers"]}')
    if not is_number(rows, 1):
        raise BadTrace('an order without "rows"')
    if not isinstance(experts, list) or not experts:
        raise BadTrace('an order without "experts"')
    if not all(is_number(e) and e < head["experts"] for e in experts):
        raise BadTrace(f'"experts" are no numbers below {head["experts"]}')
    if any(a >= b for a, b in zip(experts, experts[1:])):
        raise BadTrace('"experts" do not rise')
    picks = line.get("picks", [1] * len(experts))
    if not isinstance(picks, list) or len(picks) != len(experts) or \
            not all(is_number(n, 1) and n <= rows for n in picks):
        raise BadTrace('"picks" do not fit "experts" and "rows"')
    if sum(picks) != rows * head["experts_per_token"]:
        raise BadTrace(f"{sum(picks)} picks of {rows} rows, {head['experts_per_token']} for each")
    return Order(line["kind"] == "prefill", line["layer"], rows, tuple(experts), tuple(picks))


def read_end(line, orders):
    for name in ("orders", "hits", "misses", "slots_given_back"):
        if not is_number(line.get(name)):
            raise BadTrace(f'the end has no "{name}"')
    if not orders:
        raise BadTrace("an end without an order before it")
    if line["orders"] != len(orders):
        raise BadTrace(f"the end tells of {line['orders']} orders, and {len(orders)} are there")
    if line["hits"] + line["misses"] != sum(len(o.experts) for o in orders):
        raise BadTrace("hits and misses of the end are not as many as the experts ordered")
    return line


def by_ordinal(head, orders):
    """Layers with experts counted from 0, as the store does."""
    layers = sorted({o.layer for o in orders})
    if len(layers) != head["moe_layers"]:
        raise BadTrace(f"orders of {len(layers)} layers, and the head tells of {head['moe_layers']}")
    ordinal = {layer: i for i, layer in enumerate(layers)}
    return [o._replace(layer=ordinal[o.layer]) for o in orders]


def read_file(path):
    """All traces of one file, which stand behind one another."""
    traces, head, orders, number = [], None, [], 0
    try:
        for number, text in lines_of(path):
            try:
                line = json.loads(text)
            except (ValueError, RecursionError):
                raise BadTrace("no JSON") from None
            if not isinstance(line, dict):
                raise BadTrace("no JSON object")
            if head is None:
                head, orders = read_head(line), []
            elif "end" in line:
                end = read_end(line, orders)
                traces.append(Trace(str(path), head, by_ordinal(head, orders), end))
                head = None
            else:
                orders.append(read_order(line, head))
        if head is not None:
            raise BadTrace("no end follows: the run that wrote this was cut short")
        if not traces:
            raise BadTrace("the file is empty")
    except BadTrace as why:
        raise BadTrace(f"{path}, line {number}: {why}") from None
    except (EOFError, lzma.LZMAError, UnicodeDecodeError) as why:
        raise BadTrace(f"{path}, behind line {number}: {why}") from None
    except OSError as why:
        raise BadTrace(f"{path}: {why.strerror}") from None
    return traces


def read_files(paths):
    traces = [trace for path in paths for trace in read_file(path)]
    first = traces[0]
    for other in traces[1:]:
        for name in SAME:
            if other.head[name] != first.head[name]:
                raise BadTrace(f"{other.file}: \"{name}\" is {other.head[name]}, and in {first.file} "
                               f"{first.head[name]}: traces of two models")
    return traces
