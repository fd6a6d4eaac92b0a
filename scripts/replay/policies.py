"""What a cache of experts hits: LRU, and the best that anyone can do who knows what comes.

An order is a layer's set of experts. An expert of it that is in a slot when the order comes is a
hit, any other a miss, whatever happens to its slot afterwards. Those in slots are lent first; then
each miss is read once, and takes a free slot or that of an expert that leaves. An order that is
larger than the cache comes in waves: its own experts, once used, make room for one another."""
import collections
import heapq

Counts = collections.namedtuple("Counts", "hits misses")
NEVER = float("inf")


def names_of(order):
    """The experts of an order, each with its layer."""
    return [(order.layer, expert) for expert in order.experts]


def lru(orders, slots):
    """[(hits, misses)] of each order: whoever was used longest ago leaves."""
    held = collections.OrderedDict()  # the one used last at the end
    counts = []
    for order in orders:
        names = names_of(order)
        missing = [name for name in names if name not in held]
        for name in names:
            if name in held:
                held.move_to_end(name)
        for name in missing:
            if len(held) == slots:
                held.popitem(last=False)
            held[name] = None
        counts.append(Counts(len(names) - len(missing), len(missing)))
    return counts


def next_uses(orders):
    """For each order, when each of its experts is ordered again; NEVER is never."""
    seen, when = {}, []
    for at in range(len(orders) - 1, -1, -1):
        names = names_of(orders[at])
        when.append([seen.get(name, NEVER) for name in names])
        seen.update((name, at) for name in names)
    when.reverse()
    return when


def optimum(orders, slots):
    """[(hits, misses)] of each order as Belady (1966) has it: of what was there and what came, those
    stay that are wanted again soonest. An expert that is not worth a slot passes through without
    one: an order's experts can be computed one after the other, so a stricter rule would be no
    bound."""
    held, far, counts = {}, [], []  # far: a heap of (-next use, name); entries may be outdated
    for order, again in zip(orders, next_uses(orders)):
        names = names_of(order)
        hits = sum(held.pop(name, None) is not None for name in names)
        for name, use in zip(names, again):
            if use != NEVER:
                held[name] = use
                heapq.heappush(far, (-use, name))
        while len(held) > slots:
            known, leaving = heapq.heappop(far)
            if held.get(leaving) == -known:
                del held[leaving]
        counts.append(Counts(hits, len(names) - hits))
    return counts


def first_uses(orders):
    """How many misses nobody can avoid: experts that were never ordered before."""
    return len({name for order in orders for name in names_of(order)})
