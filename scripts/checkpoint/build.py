"""Makes one of the small checkpoints, or all of them."""
import fcntl
import hashlib
import json
import pathlib
import shutil

from . import bigrams, layout, qwen4_variants, qwen4_weights, safetensors, weights
from .tokenizer import Tokenizer
from .variants import VARIANTS

HERE = pathlib.Path(__file__).resolve().parent
TEMPLATES = HERE.parent.parent / "tests/data/chat"


def dump(value):
    return json.dumps(value, indent=2) + "\n"


def generation_config(config, eos, sampled):
    bos = config.get("text_config", config)["bos_token_id"]
    out = {"bos_token_id": bos, "eos_token_id": eos, "pad_token_id": bos, "transformers_version": "4.51.0"}
    if sampled:
        out.update(do_sample=True, temperature=0.6, top_k=20, top_p=0.95)
    return out


def is_qwen4(variant):
    return isinstance(variant, qwen4_variants.Variant)


def config_of(variant):
    if is_qwen4(variant):
        return dict(sorted(variant.config.items()))
    config = dict(variant.config)
    if variant.store == "FP8":
        config["quantization_config"] = layout.quantization_config(config)
    return dict(sorted(config.items()))


def entries_of(variant, tokenizer):
    if is_qwen4(variant):
        yield from qwen4_weights.entries(variant, tokenizer)
        return
    config, seed = variant.config, variant.seed
    source = bigrams.Bigrams(config, seed, tokenizer) if variant.bigrams else weights
    for tensor in layout.tensors(config):
        floats = source.values(config, seed, tensor, tokenizer.n_plain)
        yield from weights.stored(tensor, floats, variant.store, variant.scales)


def write_variant(variant, directory, tokenizer, entries=None):
    """A plain directory with the checkpoint."""
    (directory / "config.json").write_text(dump(config_of(variant)))
    (directory / "generation_config.json").write_text(
        dump(generation_config(variant.config, variant.eos, variant.sampled)))
    (directory / "tokenizer.json").write_text(tokenizer.json(), encoding="utf-8")
    (directory / "tokenizer_config.json").write_text(tokenizer.config_json(), encoding="utf-8")
    if is_qwen4(variant) and variant.template:
        shutil.copyfile(TEMPLATES / variant.template, directory / "chat_template.jinja")
    safetensors.write_checkpoint(directory, entries or list(entries_of(variant, tokenizer)),
                                 variant.shard_size, variant.index, variant.odd)


def into_cache_layout(directory):
    """Turns a plain directory into what a download leaves behind: snapshots/REVISION holds
    symlinks into blobs/, whose names are hashes. Returns the snapshot, relative."""
    files = sorted(directory.iterdir())
    revision = hashlib.sha1(directory.name.encode()).hexdigest()
    snapshot = pathlib.Path("snapshots") / revision
    (directory / snapshot).mkdir(parents=True)
    (directory / "blobs").mkdir()
    (directory / "refs").mkdir()
    (directory / "refs/main").write_text(revision)
    for file in files:
        blob = hashlib.sha256(file.read_bytes()).hexdigest()
        file.rename(directory / "blobs" / blob)
        (directory / snapshot / file.name).symlink_to(f"../../blobs/{blob}")
    return snapshot


def stamp_of(variant):
    """Changes when anything that goes into the checkpoint changes."""
    digest = hashlib.sha256()
    for path in sorted([*HERE.glob("*.py"), *HERE.glob("*.txt")]):
        if path.name not in ("variants.py", "qwen4_variants.py"):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    digest.update(json.dumps(vars(variant), sort_keys=True).encode())
    return digest.hexdigest()


def install(variant, root, tokenizer, entries):
    """Writes beside the goal and renames, so that a name is either whole or absent."""
    goal, work = root / variant.name, root / ".new" / variant.name
    store = root / "hub" / f"models--colizig--{variant.name}"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    write_variant(variant, work, tokenizer, entries)
    if variant.cache_layout:
        snapshot = into_cache_layout(work)
        shutil.rmtree(store, ignore_errors=True)
        store.parent.mkdir(exist_ok=True)
        work.rename(store)
        goal.unlink(missing_ok=True)
        goal.symlink_to(store.relative_to(root) / snapshot)
    else:
        shutil.rmtree(goal, ignore_errors=True)
        work.rename(goal)


def make_all(root, say):
    """Makes what is missing or out of date under root."""
    root = pathlib.Path(root)
    stamps = root / ".stamps"
    stamps.mkdir(parents=True, exist_ok=True)
    with open(root / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        tokenizers, shared = {}, {}
        for variant in [*VARIANTS, *qwen4_variants.VARIANTS]:
            stamp = stamps / variant.name
            if (stamp.exists() and stamp.read_text() == stamp_of(variant)
                    and (root / variant.name / "config.json").exists()):
                continue
            say(f"{variant.name}: {variant.about}")
            stamp.unlink(missing_ok=True)
            tokenizer = tokenizers.setdefault(variant.n_merges, None)
            if not tokenizer:
                tokenizer = tokenizers[variant.n_merges] = Tokenizer(variant.n_merges)
            entries = shared.get(variant.same_as) or list(entries_of(variant, tokenizer))
            if variant.name == "tiny-fp8":
                shared[variant.name] = entries  # several others store the same values
            install(variant, root, tokenizer, entries)
            stamp.write_text(stamp_of(variant))
        shutil.rmtree(root / ".new", ignore_errors=True)
