"""The picture of a replay: hit rates over the number of slots."""


class NoPlot(Exception):
    pass


def draw(path, title, rows, ceiling, n_experts):
    """rows: (slots, {name: rate}) with rates from 0 to 1; ceiling: what first uses leave."""
    try:
        import matplotlib
        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ModuleNotFoundError:
        raise NoPlot("--out needs matplotlib: run build/venv/bin/python scripts/cache-replay ... "
                     "(make build/venv/ready installs it), or leave --out away") from None
    looks = {"optimum": ("#444444", "^", "Belady's optimum"), "ours": ("#0b5fa5", "o", "colizig"),
             "lru": ("#c2571a", "s", "LRU")}
    figure, axes = pyplot.subplots(figsize=(7.2, 4.4), layout="constrained")
    slots = [at for at, _ in rows]
    axes.axhline(100 * ceiling, color="#888888", linewidth=0.9, linestyle=":",
                 label="all but first uses")
    for name, (colour, mark, label) in looks.items():
        axes.plot(slots, [100 * rates[name] for _, rates in rows], color=colour, marker=mark,
                  markersize=4.5, linewidth=1.4, label=label)
    axes.set(xlabel=f"expert slots (of {n_experts} experts)", ylabel="hit rate, %",
             ylim=(0, 102), xlim=(0, None))
    axes.set_title(title, parse_math=False)  # a model's name may hold any $
    axes.grid(linewidth=0.4, color="#cccccc")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="lower right", frameon=False)
    try:
        # format: left to itself it writes NAME.png where NAME has no such end.
        figure.savefig(path, format="png", dpi=100, metadata={"Software": None})
    except OSError as why:
        raise NoPlot(f"--out {path}: {why.strerror}") from None
    finally:
        pyplot.close(figure)
