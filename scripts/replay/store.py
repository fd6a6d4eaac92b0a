"""What the engine's own expert store makes of a trace: orders go to tests/bench/replay_experts,
which is linked with it."""
import subprocess

from replay.policies import Counts


class NoReplay(Exception):
    pass


def least_slots(head):
    """Fewer cannot work: expert_store_min_slots."""
    return head["experts_per_token"] + head["reads_in_flight"]


def text_of(head, orders):
    yield "{moe_layers} {experts} {experts_per_token} {reads_in_flight}\n".format(**head)
    for order in orders:
        pairs = " ".join(f"{e}:{n}" for e, n in zip(order.experts, order.picks))
        yield f"{0 if order.prefill else 1} {order.layer} {order.rows} {pairs}\n"


def replay(program, head, orders, capacities):
    """{slots: (counts of prefill, counts of decode)}"""
    try:
        done = subprocess.run([program, *map(str, capacities)], input="".join(text_of(head, orders)),
                              capture_output=True, text=True, check=False)
    except OSError as why:
        raise NoReplay(f"{program}: {why.strerror}; make units builds it") from None
    if done.returncode != 0:
        raise NoReplay(done.stderr.strip() or f"{program} ended with {done.returncode}")
    counts = {}
    for line in done.stdout.splitlines():
        slots, *numbers = map(int, line.split())
        counts[slots] = Counts(*numbers[:2]), Counts(*numbers[2:])
    return counts
