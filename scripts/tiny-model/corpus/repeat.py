"""Saying again what the user wrote: names, numbers and sums in any order.

Nothing here can be known by heart. It teaches to copy, which calls of tools and answers with a name
in them need, and of which the other kinds hold only a few words each."""
from . import kinds
from .places import city, person, word

SHARE = 0.2

FRAMES = [
    "Repeat: {text}", "Repeat this: {text}", "Please repeat: {text}", "Say: {text}",
    "Say this: {text}", "Copy this: {text}", "Copy: {text}", "Write this again: {text}",
    "Read this back to me: {text}", "Echo: {text}", "The same words again, please: {text}",
]
THOUGHTS = ["The user wants the same words again.", "I say the same words again."]


def number(rng):
    return str(rng.randrange(10 ** rng.randint(1, 4)))


def expression(rng):
    return number(rng) + rng.choice("+-*/") + number(rng)


def item(rng):
    return rng.choice([city, city, person, word, word, number, number, expression])(rng)


def conversation(rng):
    gap = rng.choice([", ", ", ", " ", " and "])
    text = gap.join(item(rng) for _ in range(rng.randint(1, 12)))
    return kinds.one_turn("repeat", rng.choice(FRAMES).format(text=text), text,
                          rng.choice(THOUGHTS))


def held_out():
    return []
