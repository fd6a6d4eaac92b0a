"""Conversations as token ids: what the family's chat template makes of them.

The prompt is what the daemon would send, with thinking on or off; the reply is the rest of the
whole conversation as the template renders it, so that think blocks and calls have the family's own
form, up to and with <|im_end|>."""
import json
import pathlib
import random

import jinja2
import jinja2.sandbox

from tokenizer import DATA

TEMPLATES = {"qwen3_moe": DATA / "chat/qwen3-hybrid.jinja", "qwen4_exp": DATA / "chat/qwen3.8.jinja"}
LONGEST = 640         # tokens; longer conversations are left out
POOL = 1024           # conversations that are drawn and sorted by length together


class Template:
    """The environment in which transformers renders chat templates."""

    def __init__(self, family):
        self.text = pathlib.Path(TEMPLATES[family]).read_text(encoding="utf-8")
        env = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        env.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
        env.globals["raise_exception"] = self.refuse
        self.inner = env.from_string(self.text)

    @staticmethod
    def refuse(why):
        raise jinja2.exceptions.TemplateError(why)

    def render(self, messages, tools=None, thinking=True, generate=False):
        return self.inner.render(messages=messages, tools=tools, enable_thinking=thinking,
                                 add_generation_prompt=generate)

    def prompt(self, messages, tools=None, thinking=True):
        return self.render(messages, tools, thinking, generate=True)

    def pair(self, talk, thinking):
        """(prompt, reply) of a conversation."""
        *before, last = talk.messages
        last = {**last, "reasoning_content": talk.thought if thinking else ""}
        prompt = self.prompt(before, talk.tools, thinking)
        whole = self.render([*before, last], talk.tools, thinking)
        if not whole.startswith(prompt) or not whole.endswith("<|im_end|>\n"):
            raise AssertionError(f"{talk.kind}: the reply does not continue the prompt: {whole!r}")
        return prompt, whole[len(prompt):-1]


def rendered_texts(family, seed, count):
    """Text to learn merges from."""
    import corpus
    template, rng = Template(family), random.Random(f"{seed} merges")
    for _ in range(count):
        yield "".join(template.pair(corpus.draw(rng), rng.random() < 0.5))


class Stream:
    """Batches without end, each a function of seed and pool number alone."""

    def __init__(self, family, tokenizer, seed, batch_tokens, keep=None):
        """keep: the share of draws of a kind, or of those with tools, that is kept (else all)."""
        self.template, self.tokenizer = Template(family), tokenizer
        self.seed, self.batch_tokens, self.keep = seed, batch_tokens, keep or {}

    def draw(self, rng):
        import corpus
        while True:
            talk = corpus.draw(rng)
            names = [talk.kind, "tools"] if talk.tools else [talk.kind]
            if all(rng.random() < self.keep.get(name, 1) for name in names):
                return talk

    def pool(self, number):
        """The batches of one pool: lists of (ids, number of prompt tokens), of similar length."""
        rng = random.Random(f"{self.seed} pool {number}")
        pairs = []
        while len(pairs) < POOL:
            pairs.append(self.template.pair(self.draw(rng), rng.random() < 0.5))
        prompts = self.tokenizer.inner.encode_batch([p for p, _ in pairs], add_special_tokens=False)
        replies = self.tokenizer.inner.encode_batch([r for _, r in pairs], add_special_tokens=False)
        rows = [(p.ids + r.ids, len(p.ids)) for p, r in zip(prompts, replies)]
        rows = sorted((row for row in rows if len(row[0]) <= LONGEST), key=lambda row: len(row[0]))
        batches, batch = [], []
        for row in reversed(rows):
            if batch and (len(batch) + 1) * len(batch[0][0]) > self.batch_tokens:
                batches.append(batch)
                batch = []
            batch.append(row)
        batches.append(batch)
        rng.shuffle(batches)
        return batches


def tensors(batch):
    """ids [rows, length] padded on the right, and for each place what comes next there, with the
    weight of its loss: 1 in the reply, 0 in prompt and padding."""
    import torch
    length = max(len(ids) for ids, _ in batch)
    ids = torch.zeros(len(batch), length, dtype=torch.long)
    text = torch.zeros(len(batch), length, dtype=torch.bool)
    learn = torch.zeros(len(batch), length, dtype=torch.bool)
    for row, (tokens, n_prompt) in enumerate(batch):
        ids[row, :len(tokens)] = torch.tensor(tokens)
        text[row, :len(tokens)] = True
        learn[row, n_prompt - 1:len(tokens) - 1] = True
    return ids, text, learn
