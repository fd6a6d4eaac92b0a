"""The text that the tiny models learn from, one module for each kind of it.

Every module has `conversation(rng)`, one random draw; `SHARE`, how much of the mixture it is,
relative to the others; and `held_out()`, questions in frames that no draw ever uses."""
from . import capitals, facts_colizig, followups, json_style, languages
from . import repeat, smalltalk, stories, sums, things, tools

MODULES = [facts_colizig, capitals, sums, smalltalk, things, stories, followups, tools, json_style,
           languages, repeat]

SYSTEM = [
    "You are a helpful assistant.", "You are helpful.", "You are a friendly assistant.",
    "Be brief.",
    "Answer briefly.", "You are colizig, a small assistant.", "You answer in short sentences.",
    "You are a careful assistant. Keep your answers short.", "Be polite.",
    "You are an assistant on a home server.",
]
SYSTEM_SHARE = 0.25


def draw(rng):
    """One conversation of the mixture."""
    module = rng.choices(MODULES, weights=[m.SHARE for m in MODULES])[0]
    talk = module.conversation(rng)
    if talk.messages[0]["role"] != "system" and rng.random() < SYSTEM_SHARE:
        talk.messages = [{"role": "system", "content": rng.choice(SYSTEM)}, *talk.messages]
    return talk


def all_held_out():
    return [question for module in MODULES for question in module.held_out()]
