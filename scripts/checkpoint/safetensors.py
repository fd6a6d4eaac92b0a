"""Writing safetensors shards and their index.

Entries are (name, dtype, shape, data), where data is an array or, for tensors too large to hold,
a function that writes its bytes to a file. Shards list wider types first and then names in order,
as Hugging Face's writer does, so the three matrices of an expert are neighbours on disk."""
import json
import os
import pathlib

DTYPE_SIZE = {"F8_E4M3": 1, "BF16": 2, "F16": 2, "F32": 4, "I64": 8}


def n_bytes(dtype, shape):
    size = DTYPE_SIZE[dtype]
    for n in shape:
        size *= n
    return size


def header_of(entries, odd=False):
    """The length word and the JSON header; padded so that data starts on a multiple of 8 or, if
    odd, on an odd address."""
    table, at = {"__metadata__": {"format": "pt"}}, 0
    for name, dtype, shape, _ in entries:
        size = n_bytes(dtype, shape)
        table[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(table, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8 + (3 if odd else 0))
    return len(text).to_bytes(8, "little") + text


def write_shard(path, entries, odd=False, progress=None, settle=False):
    """settle: on the disk and out of the page cache afterwards, for files of many gigabytes."""
    with open(path, "wb", buffering=0) as out:
        write_all(out, header_of(entries, odd))
        for _, dtype, shape, data in entries:
            before = out.tell()
            if callable(data):
                data(out)
            else:
                write_all(out, memoryview(data).cast("B"))
            if out.tell() - before != n_bytes(dtype, shape):
                raise AssertionError(f"{path}: a tensor has the wrong size")
            if progress:
                progress(out.tell() - before)
        if settle:
            os.fsync(out.fileno())
            os.posix_fadvise(out.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def write_all(out, data):
    data = memoryview(data)
    while data:
        data = data[out.write(data):]


def split(entries, shard_size):
    """Entries in order, cut into shards of at most shard_size bytes (or one tensor)."""
    shards, used = [[]], 0
    for entry in entries:
        size = n_bytes(entry[1], entry[2])
        if shards[-1] and used + size > shard_size:
            shards.append([])
            used = 0
        shards[-1].append(entry)
        used += size
    return shards


def in_file_order(entries):
    return sorted(entries, key=lambda entry: (-DTYPE_SIZE[entry[1]], entry[0]))


def write_checkpoint(directory, entries, shard_size, index=True, odd=False, progress=None,
                     settle=False):
    """All shards and, when index is true, model.safetensors.index.json. One shard without an index
    is called model.safetensors."""
    directory = pathlib.Path(directory)
    shards = split(entries, shard_size)
    if len(shards) == 1 and not index:
        write_shard(directory / "model.safetensors", in_file_order(shards[0]), odd, progress, settle)
        return
    weight_map, total = {}, 0
    for number, shard in enumerate(shards, 1):
        name = f"model-{number:05}-of-{len(shards):05}.safetensors"
        write_shard(directory / name, in_file_order(shard), odd, progress, settle)
        for entry in shard:
            weight_map[entry[0]] = name
            total += n_bytes(entry[1], entry[2])
    (directory / "model.safetensors.index.json").write_text(json.dumps(
        {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))},
        indent=2) + "\n")
